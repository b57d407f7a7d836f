//! Words of the list of events and of one event.

crate::lang::words!(
    /// What the pages of events say.
    Events {
        title: "Events", "Eventos", "Eventos";
        lead: "Everything that was taken in, newest first.", "Tudo o que foi recebido, do mais novo ao mais antigo.", "Todo lo recibido, de lo más nuevo a lo más antiguo.";
        about: "About", "Sobre", "Acerca de";
        copies: "Copies", "Cópias", "Copias";
        empty: "No event has come in yet.", "Nenhum evento chegou ainda.", "Todavía no ha llegado ningún evento.";
    }
);
