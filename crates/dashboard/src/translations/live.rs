//! Texts of the live tail.

crate::lang::translations!(
    LiveTexts {
        lead: "Events and deliveries in real time", "Eventos e entregas em tempo real", "Eventos y entregas en tiempo real";
        received: "Received", "Recebido", "Recibido";
        all: "All", "Todos", "Todos";
        any_kind: "Any type", "Qualquer tipo", "Cualquier tipo";
        rate: "{} per second", "{} por segundo", "{} por segundo";
        shown: "{} of {} shown since you opened this page", "{} de {} mostrados desde que você abriu esta página", "{} de {} mostrados desde que abrió esta página";
        paused: "Paused, {} new", "Pausado, {} novos", "En pausa, {} nuevos";
        summary: "{} in the last 10 seconds, {} failed for good", "{} nos últimos 10 segundos, {} com falha definitiva", "{} en los últimos 10 segundos, {} con fallo definitivo";
        waiting: "No activity yet. New rows appear automatically.", "Nenhuma atividade ainda. As novas linhas aparecem automaticamente.", "Todavía no hay actividad. Las filas nuevas aparecen automáticamente.";
        lost: "Connection lost. Reconnecting…", "Conexão perdida. Reconectando…", "Conexión perdida. Reconectando…";
        gap: "Some rows were skipped because of high volume.", "Algumas linhas foram omitidas devido ao alto volume.", "Se omitieron algunas filas por el volumen alto.";
        needs_script: "This page needs JavaScript. Use the event list instead.", "Esta página precisa de JavaScript. Use a lista de eventos.", "Esta página necesita JavaScript. Use la lista de eventos.";
        table: "Latest rows", "Linhas mais recentes", "Filas más recientes";
    }
);
