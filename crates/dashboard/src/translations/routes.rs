//! Words of the pages about routes.

crate::lang::words!(
    /// What the pages about routes say.
    RouteTexts {
        title: "Routes", "Rotas", "Rutas";
        lead: "Which events of a source go to which destination.", "Quais eventos de uma origem vão para qual destino.", "Qué eventos de un origen van a qué destino.";
        new: "New route", "Nova rota", "Nueva ruta";
        edit: "Route from {} to {}", "Rota de {} para {}", "Ruta de {} a {}";
        playground: "Try jq", "Testar jq", "Probar jq";
        empty: "There is no route yet, so that what comes in goes nowhere.", "Ainda não há nenhuma rota, então o que chega não vai a lugar nenhum.", "Todavía no hay ninguna ruta, así que lo que llega no va a ninguna parte.";
        needs_both: "A route needs a source and a destination. Make those first.", "Uma rota precisa de uma origem e de um destino. Crie-os primeiro.", "Una ruta necesita un origen y un destino. Créelos primero.";
        all_events: "all events", "todos os eventos", "todos los eventos";
        goes_nowhere: "goes nowhere", "não vai a lugar nenhum", "no va a ninguna parte";
        from: "From", "De", "De";
        to: "To", "Para", "Para";
        filter: "FilterQuery (jq)", "Filtro (jq)", "Filtro (jq)";
        filter_hint: "Only events for which this is true. Empty: all.", "Só eventos para os quais isto é verdade. Vazio: todos.", "Solo eventos para los que esto es verdad. Vacío: todos.";
        transform: "Transform (jq)", "Transformação (jq)", "Transformación (jq)";
        transform_hint: "What is sent instead of the body. No output drops the event. Empty: the body as it came.", "O que é enviado em vez do corpo. Sem saída, o evento é descartado. Vazio: o corpo como chegou.", "Lo que se envía en lugar del cuerpo. Sin salida se descarta el evento. Vacío: el cuerpo como llegó.";
        tried_on: "Tried on", "Testado em", "Probado con";
        own_json: "JSON of your own, below", "JSON próprio, abaixo", "JSON propio, abajo";
        body: "JSON of your own", "JSON próprio", "JSON propio";
        pick: "Show its events", "Mostrar os eventos", "Mostrar sus eventos";
        try_it: "Try", "Testar", "Probar";
        save_route: "Save as route", "Salvar como rota", "Guardar como ruta";
        result: "Result", "Resultado", "Resultado";
        result_none: "Write a filter or a transform and try it: nothing is sent.", "Escreva um filtro ou uma transformação e teste: nada é enviado.", "Escriba un filtro o una transformación y pruebe: no se envía nada.";
        matches: "matches: the event would go there", "corresponde: o evento iria para lá", "coincide: el evento iría allí";
        no_match: "does not match: the event would not go there", "não corresponde: o evento não iria para lá", "no coincide: el evento no iría allí";
        no_filter: "no filter: every event goes there", "sem filtro: todo evento vai para lá", "sin filtro: todo evento va allí";
        filter_failed: "The filter failed", "O filtro falhou", "El filtro falló";
        transform_failed: "The transform failed", "A transformação falhou", "La transformación falló";
        dropped: "The transform has no output: nothing would be sent.", "A transformação não tem saída: nada seria enviado.", "La transformación no tiene salida: no se enviaría nada.";
        output: "What would be sent", "O que seria enviado", "Lo que se enviaría";
        input: "What it was tried on", "No que foi testado", "Con qué se probó";
        masked: "Secret values are masked here; a real route sees them.", "Valores secretos estão ocultos aqui; uma rota real os vê.", "Los valores secretos están ocultos aquí; una ruta real los ve.";
        delete_text: "Events that come from then on do not take this way any more. What is on its way still arrives.", "Eventos que chegarem depois não seguem mais este caminho. O que já está a caminho ainda chega.", "Los eventos que lleguen después ya no siguen este camino. Lo que está en camino todavía llega.";
        route: "route", "rota", "ruta";
    }
);
