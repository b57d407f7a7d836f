//! Texts of the event list.

crate::lang::translations!(
    EventListTexts {
        lead: "All events, newest first", "Todos os eventos, do mais recente ao mais antigo", "Todos los eventos, del más reciente al más antiguo";
        empty: "No events yet", "Nenhum evento ainda", "Todavía no hay eventos";
        empty_next: "Send a webhook to one of your sources, or create a source.", "Envie um webhook para uma das suas origens ou crie uma origem.", "Envíe un webhook a uno de sus orígenes o cree un origen.";
        key_conflict: "Key conflict", "Conflito de chave", "Conflicto de clave";
        key_conflict_hint: "Another event has the same key with another body", "Outro evento tem a mesma chave com outro corpo", "Otro evento tiene la misma clave con otro cuerpo";
        no_deliveries: "No deliveries", "Sem entregas", "Sin entregas";
        select: "Select event {}", "Selecionar o evento {}", "Seleccionar el evento {}";
        select_all: "Select all events on this page", "Selecionar todos os eventos desta página", "Seleccionar todos los eventos de esta página";
        replay_selected: "Replay failed deliveries", "Reenviar entregas com falha", "Reenviar entregas fallidas";
        selected_count: "({} selected)", "({} selecionados)", "({} seleccionados)";
        export: "Export:", "Exportar:", "Exportar:";
        searched: "Searched {} events back to", "Busca feita em {} eventos, até", "Búsqueda en {} eventos, hasta";
        searched_more: "Older events may match too.", "Pode haver resultados em eventos mais antigos.", "Puede haber resultados en eventos más antiguos.";
    }
);
