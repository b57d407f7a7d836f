//! Texts of the page about alerts.

crate::lang::translations!(
    AlertTexts {
        lead: "What needs attention, and who gets a message", "O que precisa de atenção e quem é avisado", "Qué requiere atención y a quién se avisa";
        active: "Active alerts", "Alertas ativos", "Alertas activas";
        active_none: "No active alerts. Everything the rules watch is within its limits.", "Nenhum alerta ativo. Tudo o que as regras observam está dentro dos limites.", "No hay alertas activas. Todo lo que vigilan las reglas está dentro de sus límites.";
        past: "Past alerts", "Alertas anteriores", "Alertas anteriores";
        past_none: "No past alerts", "Nenhum alerta anterior", "No hay alertas anteriores";
        channels: "Alert channels", "Canais de alerta", "Canales de alerta";
        channels_lead: "A channel is a destination that also gets alerts: Slack, Discord, e-mail, WhatsApp or a webhook.", "Um canal é um destino que também recebe alertas: Slack, Discord, e-mail, WhatsApp ou um webhook.", "Un canal es un destino que también recibe alertas: Slack, Discord, correo, WhatsApp o un webhook.";
        channels_none: "There is no alert channel yet, so alerts are only shown here. Create a destination, or edit one, and choose a format under \"Alerts\". All rules are then on, with defaults that fit most gateways.", "Ainda não há canal de alerta, portanto os alertas aparecem apenas aqui. Crie ou edite um destino e escolha um formato em \"Alertas\". Todas as regras passam a valer, com padrões que servem para a maioria.", "Todavía no hay un canal de alerta, por lo que las alertas solo se muestran aquí. Cree o edite un destino y elija un formato en \"Alertas\". Todas las reglas quedan activas, con valores que sirven para la mayoría.";
        add_channel: "New channel", "Novo canal", "Nuevo canal";
        test: "Send test", "Enviar teste", "Enviar prueba";
        test_sent: "A test message to {} is on its way", "Uma mensagem de teste para {} está a caminho", "Un mensaje de prueba para {} está en camino";
        format: "Format", "Formato", "Formato";
        alert: "Alert", "Alerta", "Alerta";
        subject: "Subject", "Objeto", "Objeto";
        details: "Details", "Detalhes", "Detalles";
        since: "Since", "Desde", "Desde";
        until: "Resolved", "Resolvido", "Resuelta";
        not_notified: "Not sent to a channel", "Não avisado a nenhum canal", "No avisada a ningún canal";
        destination: "Destination", "Destino", "Destino";
        source: "Source", "Origem", "Origen";
        node: "Node", "Nó", "Nodo";
        gateway: "Gateway", "Gateway", "Gateway";
        email: "E-mail", "E-mail", "Correo";
        rule_unusable: "Cannot deliver", "Não consegue entregar", "No puede entregar";
        rule_circuit: "Circuit open", "Circuito aberto", "Circuito abierto";
        rule_failing: "Failing", "Falhando", "Fallando";
        rule_ratio: "High failure rate", "Taxa de falhas alta", "Tasa de fallos alta";
        rule_pending: "Deliveries overdue", "Entregas atrasadas", "Entregas atrasadas";
        rule_dead: "New dead letters", "Novas entregas na fila de falhas", "Nuevas entregas fallidas";
        rule_dead_count: "Many dead letters", "Fila de falhas grande", "Muchas entregas fallidas";
        rule_silent: "No events", "Sem eventos", "Sin eventos";
        rule_signatures: "Invalid signatures", "Assinaturas inválidas", "Firmas no válidas";
        rule_disk: "Low disk space", "Pouco espaço em disco", "Poco espacio en disco";
        rule_quota: "Daily message limit", "Limite diário de mensagens", "Límite diario de mensajes";
        rule_node: "Node lost", "Nó perdido", "Nodo perdido";
        waiting: "{} deliveries wait", "{} entregas aguardam", "{} entregas esperan";
        attempts_failed: "{} of {} attempts failed in the last {}", "{} de {} tentativas falharam nos últimos {}", "{} de {} intentos fallaron en los últimos {}";
        overdue: "The oldest delivery is overdue by {}; {} deliveries wait", "A entrega mais antiga está atrasada em {}; {} entregas aguardam", "La entrega más antigua lleva {} de atraso; {} entregas esperan";
        became_dead: "{} deliveries became dead letters in the last {}", "{} entregas foram para a fila de falhas nos últimos {}", "{} entregas pasaron a fallidas en los últimos {}";
        of_limit: "{} of {}", "{} de {}", "{} de {}";
        no_event: "No event for {}; expected every {}", "Nenhum evento há {}; esperado a cada {}", "Ningún evento desde hace {}; se espera uno cada {}";
        unsigned: "{} requests without a valid signature in the last {}", "{} requisições sem assinatura válida nos últimos {}", "{} solicitudes sin firma válida en los últimos {}";
        disk_free: "{} free; threshold {}", "{} livres; limite {}", "{} libres; umbral {}";
        no_sign: "No sign of life for {}", "Sem sinal de vida há {}", "Sin señales de vida desde hace {}";
    }
);
