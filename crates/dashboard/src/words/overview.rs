//! Words of the overview.

crate::lang::words!(
    /// What the overview says.
    Overview {
        title: "Overview", "Visão geral", "Resumen";
        lead: "How the gateway does, as it happens.", "Como o gateway está, ao vivo.", "Cómo va la pasarela, en vivo.";
        received: "Received per second", "Recebidos por segundo", "Recibidos por segundo";
        success: "Successful attempts", "Tentativas com sucesso", "Intentos con éxito";
        p95: "Latency, p95", "Latência, p95", "Latencia, p95";
        retrying: "Retrying", "Tentando de novo", "Reintentando";
        dead: "Dead letters", "Mensagens mortas", "Mensajes muertos";
        oldest: "Oldest pending", "Pendente mais antiga", "Pendiente más antiguo";
        nothing_waits: "nothing waits", "nada espera", "nada espera";
        last_minute: "in the last minute", "no último minuto", "en el último minuto";
        in_range: "in the chosen time", "no período escolhido", "en el período elegido";
        in_marked: "in the marked time", "no período marcado", "en el período marcado";
        now: "now", "agora", "ahora";
        range: "Time shown", "Período mostrado", "Período mostrado";
        range_marked: "marked", "marcado", "marcado";
        range_back: "Back to the last hour", "Voltar à última hora", "Volver a la última hora";
        brush_hint: "Drag across a chart to look closer.", "Arraste sobre um gráfico para ver de perto.", "Arrastre sobre un gráfico para ver de cerca.";
        as_table: "The same as a table", "O mesmo em tabela", "Lo mismo en tabla";
        chart_in: "Taken in", "Recebidos", "Recibidos";
        chart_in_lead: "Events by what became of them at the door.", "Eventos conforme o que houve na entrada.", "Eventos según lo que pasó en la entrada.";
        chart_out: "Attempts", "Tentativas", "Intentos";
        chart_out_lead: "Attempts to deliver by how they ended.", "Tentativas de entrega conforme terminaram.", "Intentos de entrega según terminaron.";
        chart_latency: "Latency", "Latência", "Latencia";
        chart_latency_lead: "From received to delivered: so long half, 95 % and 99 % took at most.", "Do recebimento à entrega: no máximo este tempo para metade, 95 % e 99 %.", "De la recepción a la entrega: como máximo este tiempo para la mitad, el 95 % y el 99 %.";
        accepted: "accepted", "aceitos", "aceptados";
        duplicates: "duplicates", "duplicados", "duplicados";
        succeeded: "succeeded", "com sucesso", "con éxito";
        failed: "failed, tried again", "falharam, nova tentativa", "fallidos, se reintentan";
        died: "died", "morreram", "muertos";
        failing: "Destinations in trouble", "Destinos com problemas", "Destinos con problemas";
        all_well: "Every destination does well.", "Todos os destinos estão bem.", "Todos los destinos están bien.";
        last_failure: "Fails by", "Falha por", "Falla por";
        retries_now: "retrying", "tentando de novo", "reintentando";
        circuit_closed: "reachable", "acessível", "accesible";
        circuit_open: "left alone for a while", "em pausa por falhas", "en espera por fallos";
        circuit_trying: "trying carefully", "testando com cuidado", "probando con cuidado";
        cooling: "asked us to wait", "pediu para esperar", "pidió esperar";
        paused: "paused", "pausado", "en pausa";
        misconfigured: "settings cannot be used", "configuração inválida", "configuración inválida";
        groups: "Open groups of dead letters", "Grupos abertos de mensagens mortas", "Grupos abiertos de mensajes muertos";
        no_groups: "Nothing is dead.", "Nada está morto.", "Nada está muerto.";
        all_groups: "All dead letters", "Todas as mensagens mortas", "Todos los mensajes muertos";
        cause: "Cause", "Causa", "Causa";
        count: "Dead", "Mortas", "Muertos";
        last_seen: "Last seen", "Visto por último", "Visto por última vez";
        sent_today: "Sent today", "Enviadas hoje", "Enviados hoy";
        sent_of: "{} of {}", "{} de {}", "{} de {}";
        day_warns: "many for a day", "muitas para um dia", "muchos para un día";
        day_full: "the day is full", "limite do dia atingido", "límite del día alcanzado";
        class_transient: "passing failure", "falha passageira", "fallo pasajero";
        class_throttled: "asked us to slow down", "pediu mais calma", "pidió ir más despacio";
        class_permanent: "refused for good", "recusado de vez", "rechazado del todo";
        class_config: "wrong address or rights", "endereço ou acesso errado", "dirección o acceso incorrectos";
        class_ambiguous: "nobody knows if it arrived", "não se sabe se chegou", "no se sabe si llegó";
        class_unknown: "unknown", "desconhecida", "desconocida";
        start_title: "Your first delivered event", "Seu primeiro evento entregue", "Su primer evento entregado";
        start_lead: "Two steps, and this page moves by itself.", "Dois passos, e esta página avança sozinha.", "Dos pasos, y esta página avanza sola.";
        step_source: "A source receives", "Uma origem recebe", "Un origen recibe";
        step_source_ready: "`{}` is ready. Providers send to its address.", "`{}` está pronta. Os provedores enviam ao endereço dela.", "`{}` está listo. Los proveedores envían a su dirección.";
        step_source_none: "There is no source yet. Create one; a name is enough.", "Ainda não há origem. Crie uma; basta um nome.", "Todavía no hay origen. Cree uno; basta un nombre.";
        step_source_new: "Create a source", "Criar uma origem", "Crear un origen";
        step_send: "Send it an event", "Envie um evento a ela", "Envíele un evento";
        step_send_lead: "Run this line in a terminal:", "Execute esta linha em um terminal:", "Ejecute esta línea en una terminal:";
        step_see: "See it arrive", "Veja-o chegar", "Véalo llegar";
        waiting: "Waiting for your first event…", "Esperando seu primeiro evento…", "Esperando su primer evento…";
        arrived: "It arrived", "Chegou", "Llegó";
        arrived_lead: "`{}` took it in. See what was decided about it and where it was delivered.", "`{}` o recebeu. Veja o que foi decidido e onde foi entregue.", "`{}` lo recibió. Vea qué se decidió y dónde se entregó.";
        arrived_see: "See the event", "Ver o evento", "Ver el evento";
        arrived_overview: "Open the overview", "Abrir a visão geral", "Abrir el resumen";
    }
);

impl Overview {
    /// A class of failure for people; a word that is not known as it is.
    pub(crate) fn class<'w>(&self, word: &'w str) -> &'w str {
        match word {
            "transient" => self.class_transient,
            "throttled" => self.class_throttled,
            "permanent" => self.class_permanent,
            "config" => self.class_config,
            "ambiguous" => self.class_ambiguous,
            other => other,
        }
    }
}
