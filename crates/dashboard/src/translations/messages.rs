//! Words of messages and conversations.

crate::lang::words!(
    /// What the pages of messages and conversations say.
    MessageTexts {
        title: "Messages", "Mensagens", "Mensajes";
        lead: "What was sent from here, and what became of it.", "O que foi enviado daqui e o que aconteceu depois.", "Lo que se envió desde aquí y qué pasó después.";
        to: "To", "Para", "Para";
        of_type: "Type", "Tipo", "Tipo";
        empty: "Nothing was sent yet.", "Nada foi enviado ainda.", "Todavía no se ha enviado nada.";
        empty_how: "Send a first message here, with `surehook send`, or over the API:", "Envie uma primeira mensagem aqui, com `surehook send` ou pela API:", "Envíe un primer mensaje aquí, con `surehook send` o por la API:";
        no_sender: "There is no destination that sends messages yet. Create one of the kind whatsapp-cloud, evolution-go or evolution-api.", "Ainda não há um destino que envie mensagens. Crie um do tipo whatsapp-cloud, evolution-go ou evolution-api.", "Todavía no hay un destino que envíe mensajes. Cree uno del tipo whatsapp-cloud, evolution-go o evolution-api.";
        create_destination: "Create a destination", "Criar um destino", "Crear un destino";
        compose: "New message", "Nova mensagem", "Nuevo mensaje";
        text: "Text", "Texto", "Texto";
        to_hint: "A phone with its country, such as 5511987654321.", "Um telefone com o país, por exemplo 5511987654321.", "Un teléfono con su país, por ejemplo 5511987654321.";
        send: "Send", "Enviar", "Enviar";
        sent_flash: "The message is on its way.", "A mensagem está a caminho.", "El mensaje está en camino.";
        accepted: "accepted", "aceita", "aceptado";
        sending: "sending", "enviando", "enviando";
        sent: "sent", "enviada", "enviado";
        delivered: "delivered", "recebida", "recibido";
        read: "read", "lida", "leído";
        failed: "failed", "falhou", "falló";
        statuses: "What the service said", "O que o serviço disse", "Lo que dijo el servicio";
        no_statuses: "Nothing yet. Statuses come as webhooks of the same account.", "Nada ainda. Os status chegam como webhooks da mesma conta.", "Nada todavía. Los estados llegan como webhooks de la misma cuenta.";
        sent_id: "Id at the service", "Id no serviço", "Id en el servicio";
        see_event: "The whole story", "A história completa", "La historia completa";
        delivery: "Delivery", "Entrega", "Entrega";
        conversations: "Conversations", "Conversas", "Conversaciones";
        conversations_lead: "Everything about one phone on one line: what came in, what went out, and its statuses.", "Tudo sobre um telefone em uma linha: o que chegou, o que saiu e os status.", "Todo sobre un teléfono en una línea: lo que llegó, lo que salió y sus estados.";
        phone: "Phone", "Telefone", "Teléfono";
        phone_hint: "In any form; a Brazilian one is found with and without its ninth digit.", "Em qualquer forma; um brasileiro é encontrado com e sem o nono dígito.", "En cualquier forma; uno brasileño se encuentra con y sin su noveno dígito.";
        look: "Look", "Ver", "Ver";
        recent: "Recent", "Recentes", "Recientes";
        recent_hint: "Out of the newest 200 events.", "Dentre os 200 eventos mais recentes.", "De los 200 eventos más recientes.";
        last: "Last", "Último", "Último";
        how_many: "Events", "Eventos", "Eventos";
        nobody: "No event about a phone has come in yet.", "Ainda não chegou evento sobre um telefone.", "Todavía no ha llegado ningún evento sobre un teléfono.";
        nothing_about: "Nothing is known about this phone.", "Nada se sabe sobre este telefone.", "No se sabe nada de este teléfono.";
        incoming: "came in", "chegou", "llegó";
        outgoing: "went out", "saiu", "salió";
        a_status: "status", "status", "estado";
        no_text: "no text", "sem texto", "sin texto";
        older: "Older", "Mais antigos", "Más antiguos";
        reveal: "Show the phone", "Mostrar o telefone", "Mostrar el teléfono";
        reveal_hint: "This is logged.", "Isso fica registrado.", "Esto queda registrado.";
        answer: "Answer", "Responder", "Responder";
    }
);
