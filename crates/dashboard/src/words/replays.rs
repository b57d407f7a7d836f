//! Words of the replays.

crate::lang::words!(
    /// What the pages of replays say.
    Replays {
        title: "Replays", "Reenvios", "Reenvíos";
        lead: "Jobs that deliver again, with their progress.", "Tarefas que entregam de novo, com o progresso.", "Tareas que entregan de nuevo, con su progreso.";
        none: "Nothing was replayed yet.", "Nada foi reenviado ainda.", "Todavía no se ha reenviado nada.";
        none_text: "A replay begins with dead letters, with selected events, or with a filter.", "Um reenvio começa com mensagens mortas, eventos selecionados ou um filtro.", "Un reenvío empieza con mensajes muertos, eventos seleccionados o un filtro.";
        new: "New replay", "Novo reenvio", "Nuevo reenvío";
        new_lead: "First look at what would be sent. Nothing happens until you confirm.", "Primeiro veja o que seria enviado. Nada acontece até você confirmar.", "Primero vea lo que se enviaría. Nada ocurre hasta que confirme.";
        job: "Replay", "Reenvio", "Reenvío";
        what: "What", "O quê", "Qué";
        verb_retry_failed: "Deliver dead letters again", "Entregar de novo as mensagens mortas", "Entregar de nuevo los mensajes muertos";
        verb_send_missing: "Send what a destination never got", "Enviar o que um destino nunca recebeu", "Enviar lo que un destino nunca recibió";
        verb_force_resend: "Deliver again, also what succeeded", "Entregar de novo, também o que deu certo", "Entregar de nuevo, también lo que salió bien";
        filter_label: "Which", "Quais", "Cuáles";
        filter_hint: "dest: source: reason: class: code: kind: key: status: group: since: until:", "dest: source: reason: class: code: kind: key: status: group: since: until:", "dest: source: reason: class: code: kind: key: status: group: since: until:";
        to: "To (for what was never sent)", "Para (para o que nunca foi enviado)", "A (para lo que nunca se envió)";
        rate: "How fast", "Com que rapidez", "A qué ritmo";
        rate_hint: "Such as 50/s or 10/m; live traffic goes first.", "Por exemplo 50/s ou 10/m; o tráfego ao vivo tem prioridade.", "Por ejemplo 50/s o 10/m; el tráfico en vivo va primero.";
        note: "Why (for your colleagues)", "Por quê (para seus colegas)", "Por qué (para sus colegas)";
        look: "Preview", "Prévia", "Vista previa";
        preview: "What would be sent", "O que seria enviado", "Lo que se enviaría";
        count: "Deliveries", "Entregas", "Entregas";
        at_least: "at least {}", "pelo menos {}", "al menos {}";
        span: "Received", "Recebidos", "Recibidos";
        until: "to", "até", "hasta";
        estimate: "It will take about", "Vai levar cerca de", "Tardará cerca de";
        by_destination: "To", "Para", "A";
        nothing_to_do: "Nothing matches: there is nothing to replay.", "Nada corresponde: não há o que reenviar.", "Nada coincide: no hay nada que reenviar.";
        confirm: "Type {} to confirm", "Digite {} para confirmar", "Escriba {} para confirmar";
        confirm_wrong: "The number that was typed is not {}. Nothing was started.", "O número digitado não é {}. Nada foi iniciado.", "El número escrito no es {}. No se inició nada.";
        start: "Start the replay", "Iniciar o reenvio", "Iniciar el reenvío";
        started: "The replay has begun.", "O reenvio começou.", "El reenvío ha comenzado.";
        state: "State", "Estado", "Estado";
        selecting: "selecting", "selecionando", "seleccionando";
        running: "running", "em andamento", "en curso";
        paused: "paused", "pausado", "en pausa";
        done: "done", "concluído", "terminado";
        cancelled: "cancelled", "cancelado", "cancelado";
        pause: "Pause", "Pausar", "Pausar";
        resume: "Resume", "Retomar", "Reanudar";
        cancel: "Cancel the replay", "Cancelar o reenvio", "Cancelar el reenvío";
        cancel_title: "Cancel this replay?", "Cancelar este reenvio?", "¿Cancelar este reenvío?";
        cancel_text: "What was handed out already goes on; the rest is left as it is.", "O que já foi distribuído continua; o resto fica como está.", "Lo ya repartido continúa; el resto queda como está.";
        keep_going: "Keep it running", "Manter em andamento", "Mantenerlo en curso";
        progress: "Progress", "Progresso", "Progreso";
        of: "{} of {}", "{} de {}", "{} de {}";
        selected: "Selected", "Selecionadas", "Seleccionadas";
        dispatched: "Handed out", "Distribuídas", "Repartidas";
        succeeded: "Succeeded", "Entregues", "Entregadas";
        dead: "Dead again", "Mortas de novo", "Muertas de nuevo";
        waiting: "On their way", "A caminho", "En camino";
        skipped: "Skipped", "Ignoradas", "Omitidas";
        left: "Left", "Restantes", "Restantes";
        report: "Report", "Relatório", "Informe";
        created: "Begun", "Iniciado", "Iniciado";
        ended: "Ended", "Terminado", "Terminado";
        capped: "There was more than one job may take; start another one for the rest.", "Havia mais do que uma tarefa pode levar; inicie outra para o resto.", "Había más de lo que una tarea puede tomar; inicie otra para el resto.";
        selected_done: "{} handed out again, {} refused.", "{} distribuídas de novo, {} recusadas.", "{} repartidas de nuevo, {} rechazadas.";
        selected_first: "The first refusal: {}", "A primeira recusa: {}", "El primer rechazo: {}";
        nothing_selected: "Nothing was selected.", "Nada foi selecionado.", "No se seleccionó nada.";
        see_dead: "See what died again", "Ver o que morreu de novo", "Ver lo que murió de nuevo";
        pause_done: "The replay is paused.", "O reenvio está pausado.", "El reenvío está en pausa.";
        resume_done: "The replay goes on.", "O reenvio continua.", "El reenvío continúa.";
        cancel_done: "The replay is cancelled.", "O reenvio foi cancelado.", "El reenvío fue cancelado.";
    }
);
