//! Texts of messages and conversations.

crate::lang::translations!(
    MessageTexts {
        lead: "Outgoing messages and their status", "Mensagens de saída e seus status", "Mensajes salientes y su estado";
        to: "To", "Para", "Para";
        empty: "No messages yet", "Nenhuma mensagem ainda", "Todavía no hay mensajes";
        empty_how: "Send your first message here, with `surehook send`, or through the API:", "Envie sua primeira mensagem por aqui, com `surehook send` ou pela API:", "Envíe su primer mensaje desde aquí, con `surehook send` o mediante la API:";
        no_sender: "No destination can send messages yet. Create one of type whatsapp-cloud, evolution-go or evolution-api.", "Nenhum destino envia mensagens ainda. Crie um do tipo whatsapp-cloud, evolution-go ou evolution-api.", "Todavía no hay destinos que envíen mensajes. Cree uno de tipo whatsapp-cloud, evolution-go o evolution-api.";
        create_destination: "Create destination", "Criar destino", "Crear destino";
        compose: "New message", "Nova mensagem", "Nuevo mensaje";
        text: "Text", "Texto", "Texto";
        to_hint: "Phone number with country code, for example 5511987654321.", "Telefone com código do país, por exemplo 5511987654321.", "Teléfono con código de país, por ejemplo 5511987654321.";
        sent_flash: "Message queued", "Mensagem na fila", "Mensaje en cola";
        accepted: "Accepted", "Aceita", "Aceptado";
        sending: "Sending", "Enviando", "Enviando";
        sent: "Sent", "Enviada", "Enviado";
        delivered: "Delivered", "Entregue", "Entregado";
        read: "Read", "Lida", "Leído";
        failed: "Failed", "Com falha", "Fallido";
        statuses: "Provider status updates", "Atualizações de status do provedor", "Actualizaciones de estado del proveedor";
        no_statuses: "No updates yet. The provider sends them as webhooks for the same account.", "Nenhuma atualização ainda. O provedor as envia por webhooks da mesma conta.", "Todavía no hay actualizaciones. El proveedor las envía por webhooks de la misma cuenta.";
        sent_id: "Provider message ID", "ID da mensagem no provedor", "ID del mensaje en el proveedor";
        service_response: "Response of the service", "Resposta do serviço", "Respuesta del servicio";
        view_event: "View timeline", "Ver linha do tempo", "Ver cronología";
        delivery: "Delivery", "Entrega", "Entrega";
        conversations_lead: "Messages and status updates of one phone number", "Mensagens e atualizações de status de um telefone", "Mensajes y actualizaciones de estado de un teléfono";
        phone: "Phone", "Telefone", "Teléfono";
        phone_hint: "Any format. Brazilian numbers are found with and without the ninth digit.", "Em qualquer formato. Números brasileiros são encontrados com ou sem o nono dígito.", "En cualquier formato. Los números brasileños se encuentran con o sin el noveno dígito.";
        search: "Search", "Buscar", "Buscar";
        recent: "Recent conversations", "Conversas recentes", "Conversaciones recientes";
        recent_hint: "From the latest 200 events.", "Com base nos 200 eventos mais recentes.", "Según los 200 eventos más recientes.";
        last: "Last event", "Último evento", "Último evento";
        no_conversations: "No conversations yet", "Nenhuma conversa ainda", "Todavía no hay conversaciones";
        no_events: "No events for this phone number.", "Nenhum evento deste telefone.", "No hay eventos de este teléfono.";
        incoming: "Incoming", "Recebida", "Recibido";
        outgoing: "Outgoing", "Enviada", "Enviado";
        no_text: "No text", "Sem texto", "Sin texto";
        reveal: "Show phone number", "Mostrar telefone", "Mostrar teléfono";
        reveal_hint: "Viewing it is logged.", "A visualização fica registrada.", "La visualización queda registrada.";
        reply: "Reply", "Responder", "Responder";
    }
);
