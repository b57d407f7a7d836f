//! Words of the list of events.

crate::lang::words!(
    /// What the list of events says.
    EventListTexts {
        title: "Events", "Eventos", "Eventos";
        lead: "Everything that was taken in, newest first.", "Tudo o que foi recebido, do mais novo ao mais antigo.", "Todo lo recibido, de lo más nuevo a lo más antiguo.";
        about: "About", "Sobre", "Acerca de";
        copies: "Copies", "Cópias", "Copias";
        empty: "No event has come in yet.", "Nenhum evento chegou ainda.", "Todavía no ha llegado ningún evento.";
        empty_next: "Send something to one of your sources, or look at how to set one up.", "Envie algo para uma das suas origens, ou veja como configurar uma.", "Envíe algo a uno de sus orígenes, o vea cómo configurar uno.";
        nowhere: "no delivery", "sem entrega", "sin entrega";
        choose: "Choose the event {}", "Selecionar o evento {}", "Seleccionar el evento {}";
        choose_all: "Choose all events of this page", "Selecionar todos os eventos desta página", "Seleccionar todos los eventos de esta página";
        replay_chosen: "Replay what is dead of the chosen", "Reenviar o que está morto dos selecionados", "Reenviar lo muerto de los seleccionados";
        export: "Export this list:", "Exportar esta lista:", "Exportar esta lista:";
        searched: "Looked at {} events, back to", "Foram examinados {} eventos, até", "Se examinaron {} eventos, hasta";
        searched_more: "There may be more further back.", "Pode haver mais antes disso.", "Puede haber más antes de eso.";
    }
);
