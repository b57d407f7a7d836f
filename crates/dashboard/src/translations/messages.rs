//! Texts of messages and conversations.

crate::lang::translations!(
    MessageTexts {
        title: "Messages", "Mensagens", "Mensajes";
        lead: "Outgoing messages and their status", "Mensagens enviadas e seu status", "Mensajes enviados y su estado";
        to: "To", "Para", "Para";
        of_type: "Type", "Tipo", "Tipo";
        empty: "No messages yet", "Nenhuma mensagem ainda", "Todavía no hay mensajes";
        empty_how: "Send your first message here, with `surehook send`, or through the API:", "Envie sua primeira mensagem aqui, com `surehook send` ou pela API:", "Envíe su primer mensaje aquí, con `surehook send` o por la API:";
        no_sender: "No destination can send messages yet. Create one of type whatsapp-cloud, evolution-go or evolution-api.", "Nenhum destino pode enviar mensagens ainda. Crie um do tipo whatsapp-cloud, evolution-go ou evolution-api.", "Todavía ningún destino puede enviar mensajes. Cree uno del tipo whatsapp-cloud, evolution-go o evolution-api.";
        create_destination: "Create destination", "Criar destino", "Crear destino";
        compose: "New message", "Nova mensagem", "Nuevo mensaje";
        text: "Text", "Texto", "Texto";
        to_hint: "Phone number with country code, for example 5511987654321.", "Telefone com código do país, por exemplo 5511987654321.", "Teléfono con código de país, por ejemplo 5511987654321.";
        send: "Send", "Enviar", "Enviar";
        sent_flash: "Message queued", "Mensagem na fila", "Mensaje en cola";
        accepted: "Accepted", "Aceita", "Aceptado";
        sending: "Sending", "Enviando", "Enviando";
        sent: "Sent", "Enviada", "Enviado";
        delivered: "Delivered", "Entregue", "Entregado";
        read: "Read", "Lida", "Leído";
        failed: "Failed", "Falhou", "Falló";
        statuses: "Provider status updates", "Atualizações do provedor", "Actualizaciones del proveedor";
        no_statuses: "No updates yet. The provider sends them as webhooks of the same account.", "Nenhuma atualização ainda. O provedor as envia como webhooks da mesma conta.", "Todavía no hay actualizaciones. El proveedor las envía como webhooks de la misma cuenta.";
        sent_id: "Provider message ID", "ID no provedor", "ID del proveedor";
        view_event: "View timeline", "Ver linha do tempo", "Ver cronología";
        delivery: "Delivery", "Entrega", "Entrega";
        conversations: "Conversations", "Conversas", "Conversaciones";
        conversations_lead: "Incoming and outgoing messages and statuses of one phone number", "Mensagens recebidas, enviadas e status de um telefone", "Mensajes recibidos, enviados y estados de un teléfono";
        phone: "Phone", "Telefone", "Teléfono";
        phone_hint: "Any format. Brazilian numbers match with and without the ninth digit.", "Qualquer formato. Números brasileiros são encontrados com e sem o nono dígito.", "Cualquier formato. Los números brasileños se encuentran con y sin el noveno dígito.";
        search: "Search", "Buscar", "Buscar";
        recent: "Recent conversations", "Conversas recentes", "Conversaciones recientes";
        recent_hint: "From the latest 200 events.", "Dos 200 eventos mais recentes.", "De los 200 eventos más recientes.";
        last: "Last event", "Último evento", "Último evento";
        event_count: "Events", "Eventos", "Eventos";
        no_conversations: "No conversations yet", "Nenhuma conversa ainda", "Todavía no hay conversaciones";
        no_events: "No events for this phone number.", "Nenhum evento para este telefone.", "No hay eventos para este teléfono.";
        incoming: "Incoming", "Recebida", "Recibido";
        outgoing: "Outgoing", "Enviada", "Enviado";
        a_status: "Status", "Status", "Estado";
        no_text: "No text", "Sem texto", "Sin texto";
        older: "Older", "Mais antigos", "Más antiguos";
        reveal: "Show phone number", "Mostrar telefone", "Mostrar teléfono";
        reveal_hint: "Viewing it is logged.", "A visualização fica registrada.", "La visualización queda registrada.";
        reply: "Reply", "Responder", "Responder";
    }
);
