//! Words of the live tail.

crate::lang::words!(
    /// What the live tail says.
    LiveTexts {
        title: "Live", "Ao vivo", "En vivo";
        lead: "What happens, as it happens.", "O que acontece, no momento em que acontece.", "Lo que ocurre, en el momento en que ocurre.";
        received: "received", "recebido", "recibido";
        all: "all", "todos", "todos";
        any_kind: "any kind", "qualquer tipo", "cualquier tipo";
        pause: "Pause", "Pausar", "Pausar";
        resume: "Go on", "Continuar", "Continuar";
        rate: "{} per second", "{} por segundo", "{} por segundo";
        shown: "{} shown of {} since this page was opened", "{} mostrados de {} desde que esta página foi aberta", "{} mostrados de {} desde que se abrió esta página";
        paused: "Paused. {} new", "Pausado. {} novos", "En pausa. {} nuevos";
        summary: "{} in the last 10 seconds, {} of them dead", "{} nos últimos 10 segundos, {} deles mortos", "{} en los últimos 10 segundos, {} de ellos muertos";
        waiting: "Nothing yet. Rows appear here by themselves.", "Nada ainda. As linhas aparecem aqui sozinhas.", "Nada todavía. Las filas aparecen aquí solas.";
        lost: "The connection is lost; trying again.", "A conexão caiu; tentando de novo.", "Se perdió la conexión; reintentando.";
        gap: "Some rows are missing: there were more than could be shown.", "Faltam algumas linhas: havia mais do que era possível mostrar.", "Faltan algunas filas: había más de las que se podían mostrar.";
        needs_script: "This page needs JavaScript. The list of events shows the same without it.", "Esta página precisa de JavaScript. A lista de eventos mostra o mesmo sem ele.", "Esta página necesita JavaScript. La lista de eventos muestra lo mismo sin él.";
        table: "Newest rows", "Linhas mais recentes", "Filas más recientes";
    }
);
