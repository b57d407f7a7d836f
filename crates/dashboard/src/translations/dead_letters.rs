//! Texts of the dead letter pages.

crate::lang::translations!(
    DeadLetterTexts {
        lead: "Deliveries that failed for good, grouped by cause. Fix the cause, then replay.", "Entregas que falharam definitivamente, agrupadas por causa. Corrija a causa e depois reenvie.", "Entregas que fallaron definitivamente, agrupadas por causa. Corrija la causa y luego reenvíe.";
        all: "All dead letters", "Todas as entregas com falha", "Todas las entregas fallidas";
        all_lead: "Newest first", "Mais recentes primeiro", "Más recientes primero";
        groups: "Group by cause", "Agrupar por causa", "Agrupar por causa";
        list: "View list", "Ver lista", "Ver lista";
        none: "No dead letters", "Nenhuma entrega com falha", "Sin entregas fallidas";
        none_text: "Deliveries that fail after all retries appear here with their cause, ready to replay.", "As entregas que falham em todas as tentativas aparecem aqui com a causa, prontas para reenvio.", "Las entregas que fallan en todos los intentos aparecen aquí con su causa, listas para reenviar.";
        one: "{} dead letter", "{} entrega com falha", "{} entrega fallida";
        many: "{} dead letters", "{} entregas com falha", "{} entregas fallidas";
        since: "first seen", "primeira ocorrência", "primera vez";
        last: "last seen", "última ocorrência", "última vez";
        replay_group: "Replay group", "Reenviar grupo", "Reenviar grupo";
        view_all: "View all", "Ver todas", "Ver todas";
        view_latest: "View latest", "Ver a mais recente", "Ver la más reciente";
        replay_selected: "Replay selected", "Reenviar selecionadas", "Reenviar seleccionadas";
        replay_filter: "Replay all matching", "Reenviar todas as filtradas", "Reenviar todas las filtradas";
        select: "Select {}", "Selecionar {}", "Seleccionar {}";
        event: "Event", "Evento", "Evento";
        failed_at: "Failed at", "Data da falha", "Fecha del fallo";
    }
);
