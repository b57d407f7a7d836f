//! Texts of the route pages.

crate::lang::translations!(
    RouteTexts {
        lead: "Which events of a source go to which destination", "Quais eventos de uma origem vão para qual destino", "Qué eventos de un origen van a qué destino";
        new: "New route", "Nova rota", "Nueva ruta";
        edit: "Route from {} to {}", "Rota de {} para {}", "Ruta de {} a {}";
        playground: "jq playground", "Testar jq", "Probar jq";
        empty: "No routes yet. Events are stored but not delivered.", "Nenhuma rota ainda. Os eventos são armazenados, mas não entregues.", "Todavía no hay rutas. Los eventos se guardan, pero no se entregan.";
        needs_both: "A route needs a source and a destination. Create them first.", "Uma rota precisa de uma origem e de um destino. Crie-os primeiro.", "Una ruta necesita un origen y un destino. Créelos primero.";
        all_events: "All events", "Todos os eventos", "Todos los eventos";
        no_routes: "No routes", "Sem rotas", "Sin rutas";
        filter: "Filter (jq)", "Filtro (jq)", "Filtro (jq)";
        filter_hint: "Deliver only events for which this expression is true. Empty: all events. It sees the body, $kind, $source and $headers.", "Entrega apenas os eventos em que esta expressão é verdadeira. Vazio: todos. Ela vê o corpo, $kind, $source e $headers.", "Entrega solo los eventos en los que esta expresión es verdadera. Vacío: todos. Ve el cuerpo, $kind, $source y $headers.";
        transform: "Transform (jq)", "Transformação (jq)", "Transformación (jq)";
        transform_hint: "The output is sent instead of the body. Without output, the event is dropped. Empty: the original body.", "A saída é enviada no lugar do corpo. Sem saída, o evento é descartado. Vazio: o corpo original.", "La salida se envía en lugar del cuerpo. Sin salida, el evento se descarta. Vacío: el cuerpo original.";
        test_event: "Test event", "Evento de teste", "Evento de prueba";
        custom_json: "Custom JSON (below)", "JSON personalizado (abaixo)", "JSON personalizado (abajo)";
        body: "Custom JSON", "JSON personalizado", "JSON personalizado";
        load_events: "Load events", "Carregar eventos", "Cargar eventos";
        try_it: "Test", "Testar", "Probar";
        save_route: "Save as route", "Salvar como rota", "Guardar como ruta";
        result: "Result", "Resultado", "Resultado";
        result_none: "Enter a filter or a transform to test it. Nothing is sent.", "Escreva um filtro ou uma transformação para testar. Nada será enviado.", "Escriba un filtro o una transformación para probar. No se enviará nada.";
        matches: "Match: the event would be delivered", "Passa no filtro: o evento seria entregue", "Pasa el filtro: el evento se entregaría";
        no_match: "No match: the event would not be delivered", "Não passa no filtro: o evento não seria entregue", "No pasa el filtro: el evento no se entregaría";
        no_filter: "No filter: every event is delivered", "Sem filtro: todos os eventos são entregues", "Sin filtro: se entregan todos los eventos";
        filter_failed: "Filter failed", "Erro no filtro", "Error en el filtro";
        transform_failed: "Transform failed", "Erro na transformação", "Error en la transformación";
        never_matches: "This filter matches none of the last {} events of {}.", "Este filtro não aceita nenhum dos últimos {} eventos de {}.", "Este filtro no acepta ninguno de los últimos {} eventos de {}.";
        filter_fails_on: "It fails on {} of them.", "Ele falha em {} deles.", "Falla en {} de ellos.";
        dropped: "The transform has no output. Nothing would be sent.", "A transformação não tem saída. Nada seria enviado.", "La transformación no tiene salida. No se enviaría nada.";
        output: "Output", "Saída", "Salida";
        input: "Input", "Entrada", "Entrada";
        masked: "Secret values are masked here. Real deliveries use the original values.", "Os valores secretos estão ocultos aqui. As entregas reais usam os valores originais.", "Los valores secretos están ocultos aquí. Las entregas reales usan los valores originales.";
        delete_text: "New events will no longer follow this route. Deliveries that are already queued continue.", "Novos eventos deixarão de seguir esta rota. As entregas que já estão na fila continuam.", "Los eventos nuevos ya no seguirán esta ruta. Las entregas que ya están en cola continúan.";
        deleted: "Route deleted", "Rota excluída", "Ruta eliminada";
    }
);
