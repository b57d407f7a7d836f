//! Texts of the route pages.

crate::lang::translations!(
    RouteTexts {
        title: "Routes", "Rotas", "Rutas";
        lead: "Which events of a source go to which destination", "Quais eventos de uma origem vão para qual destino", "Qué eventos de un origen van a qué destino";
        new: "New route", "Nova rota", "Nueva ruta";
        edit: "Route from {} to {}", "Rota de {} para {}", "Ruta de {} a {}";
        playground: "jq playground", "Testar jq", "Probar jq";
        empty: "No routes yet. Events are stored but not delivered.", "Nenhuma rota ainda. Os eventos são armazenados, mas não entregues.", "Todavía no hay rutas. Los eventos se guardan, pero no se entregan.";
        needs_both: "A route needs a source and a destination. Create them first.", "Uma rota precisa de uma origem e de um destino. Crie-os primeiro.", "Una ruta necesita un origen y un destino. Créelos primero.";
        all_events: "All events", "Todos os eventos", "Todos los eventos";
        no_routes: "No routes", "Sem rotas", "Sin rutas";
        from: "Source", "Origem", "Origen";
        to: "Destination", "Destino", "Destino";
        filter: "Filter (jq)", "Filtro (jq)", "Filtro (jq)";
        filter_hint: "Deliver only events for which this is true. Empty: all events.", "Entrega só os eventos para os quais isto é verdadeiro. Vazio: todos.", "Entrega solo los eventos para los que esto es verdadero. Vacío: todos.";
        transform: "Transform (jq)", "Transformação (jq)", "Transformación (jq)";
        transform_hint: "Its output is sent instead of the body. No output drops the event. Empty: the original body.", "A saída é enviada no lugar do corpo. Sem saída, o evento é descartado. Vazio: o corpo original.", "La salida se envía en lugar del cuerpo. Sin salida, el evento se descarta. Vacío: el cuerpo original.";
        test_event: "Test event", "Evento de teste", "Evento de prueba";
        own_json: "Custom JSON (below)", "JSON próprio (abaixo)", "JSON propio (abajo)";
        body: "Custom JSON", "JSON próprio", "JSON propio";
        load_events: "Load events", "Carregar eventos", "Cargar eventos";
        try_it: "Test", "Testar", "Probar";
        save_route: "Save as route", "Salvar como rota", "Guardar como ruta";
        result: "Result", "Resultado", "Resultado";
        result_none: "Enter a filter or a transform to test it. Nothing is sent.", "Escreva um filtro ou uma transformação para testar. Nada é enviado.", "Escriba un filtro o una transformación para probar. No se envía nada.";
        matches: "Match: the event would be delivered", "Corresponde: o evento seria entregue", "Coincide: el evento se entregaría";
        no_match: "No match: the event would not be delivered", "Não corresponde: o evento não seria entregue", "No coincide: el evento no se entregaría";
        no_filter: "No filter: every event is delivered", "Sem filtro: todos os eventos são entregues", "Sin filtro: se entregan todos los eventos";
        filter_failed: "Filter failed", "O filtro falhou", "El filtro falló";
        transform_failed: "Transform failed", "A transformação falhou", "La transformación falló";
        dropped: "The transform has no output. Nothing would be sent.", "A transformação não tem saída. Nada seria enviado.", "La transformación no tiene salida. No se enviaría nada.";
        output: "Output", "Saída", "Salida";
        input: "Input", "Entrada", "Entrada";
        masked: "Secret values are masked here. Real deliveries use the original values.", "Valores secretos estão ocultos aqui. As entregas reais usam os valores originais.", "Los valores secretos están ocultos aquí. Las entregas reales usan los valores originales.";
        delete_text: "New events no longer follow this route. Deliveries that are already queued continue.", "Novos eventos deixam de seguir esta rota. As entregas que já estão na fila continuam.", "Los eventos nuevos ya no siguen esta ruta. Las entregas que ya están en cola continúan.";
        route: "Route", "Rota", "Ruta";
    }
);
