//! Texts of the overview.

crate::lang::translations!(
    OverviewTexts {
        lead: "Live health of your gateway", "Saúde do seu gateway em tempo real", "Estado de su gateway en tiempo real";
        received: "Received per second", "Recebidos por segundo", "Recibidos por segundo";
        success: "Success rate", "Taxa de sucesso", "Tasa de éxito";
        p95: "p95 latency", "Latência p95", "Latencia p95";
        retrying: "Retrying", "Aguardando nova tentativa", "En espera de reintento";
        oldest: "Oldest pending", "Pendente mais antiga", "Pendiente más antigua";
        none_pending: "none pending", "nada pendente", "nada pendiente";
        last_minute: "last minute", "último minuto", "último minuto";
        in_range: "selected range", "período selecionado", "período seleccionado";
        in_marked: "custom range", "período personalizado", "período personalizado";
        now: "now", "agora", "ahora";
        range: "Time range", "Período", "Período";
        range_marked: "Custom range", "Período personalizado", "Período personalizado";
        range_back: "Back to the last hour", "Voltar à última hora", "Volver a la última hora";
        brush_hint: "Drag across a chart to zoom in.", "Arraste sobre um gráfico para ampliar.", "Arrastre sobre un gráfico para ampliar.";
        as_table: "Show as table", "Ver como tabela", "Ver como tabla";
        chart_in: "Received", "Recebidos", "Recibidos";
        chart_in_lead: "Accepted and duplicate events", "Eventos aceitos e duplicados", "Eventos aceptados y duplicados";
        chart_out: "Attempts", "Tentativas", "Intentos";
        chart_out_lead: "Delivery attempts by result", "Tentativas de entrega por resultado", "Intentos de entrega por resultado";
        chart_latency: "Latency", "Latência", "Latencia";
        chart_latency_lead: "Time from receipt to delivery (p50, p95, p99)", "Tempo do recebimento à entrega (p50, p95, p99)", "Tiempo desde la recepción hasta la entrega (p50, p95, p99)";
        accepted: "Accepted", "Aceitos", "Aceptados";
        duplicates: "Duplicates", "Duplicados", "Duplicados";
        succeeded: "Succeeded", "Bem-sucedidas", "Exitosos";
        failed: "Failed, will retry", "Falhas com nova tentativa", "Fallos con reintento";
        died: "Failed for good", "Falhas definitivas", "Fallos definitivos";
        error_type: "Error type", "Tipo de erro", "Tipo de error";
        groups: "Dead letters by cause", "Falhas por causa", "Fallos por causa";
        no_groups: "No dead letters", "Nenhuma entrega com falha", "Sin entregas fallidas";
        all_groups: "View all dead letters", "Ver a fila de falhas", "Ver entregas fallidas";
        cause: "Cause", "Causa", "Causa";
        count: "Dead", "Falhas", "Fallos";
        last_seen: "Last seen", "Última ocorrência", "Última vez";
        sent_today: "Messages sent today", "Mensagens enviadas hoje", "Mensajes enviados hoy";
        sent_of: "{} of {}", "{} de {}", "{} de {}";
        day_warns: "Near daily limit", "Perto do limite diário", "Cerca del límite diario";
        day_full: "Daily limit reached", "Limite diário atingido", "Límite diario alcanzado";
        class_unknown: "Unknown error", "Erro desconhecido", "Error desconocido";
        start_title: "Send your first event", "Envie seu primeiro evento", "Envíe su primer evento";
        start_lead: "Run one command. This page updates automatically.", "Execute um comando. Esta página se atualiza automaticamente.", "Ejecute un comando. Esta página se actualiza automáticamente.";
        step_source_ready: "“{}” is ready to receive events.", "A origem “{}” está pronta para receber eventos.", "El origen «{}» está listo para recibir eventos.";
        step_source_none: "You have no sources yet. Create one to get a URL for your webhooks.", "Você ainda não tem origens. Crie uma para obter uma URL para seus webhooks.", "Todavía no tiene orígenes. Cree uno para obtener una URL para sus webhooks.";
        step_source_new: "Create source", "Criar origem", "Crear origen";
        step_send: "Send an event", "Envie um evento", "Envíe un evento";
        step_send_lead: "Run this command in a terminal:", "Execute este comando em um terminal:", "Ejecute este comando en una terminal:";
        step_see: "See it arrive", "Veja o evento chegar", "Vea llegar el evento";
        waiting: "Waiting for your first event…", "Aguardando seu primeiro evento…", "Esperando su primer evento…";
        arrived: "Your event has arrived", "Seu evento chegou", "Su evento llegó";
        arrived_lead: "Received by “{}”. See how it was processed and where it was delivered.", "Recebido por “{}”. Veja como foi processado e para onde foi entregue.", "Recibido por «{}». Vea cómo se procesó y dónde se entregó.";
        arrived_see: "View event", "Ver evento", "Ver evento";
        arrived_overview: "Open overview", "Abrir visão geral", "Abrir resumen";
    }
);
