//! Texts of the page of one event, and of its duplicates.

use crate::lang::TextsByCode as _;

crate::lang::translations!(
    EventTexts {
        title: "Event", "Evento", "Evento";
        received: "Received", "Recebido", "Recibido";
        id: "ID", "ID", "ID";
        copy_id: "Copy ID", "Copiar ID", "Copiar ID";
        key_conflict: "Key conflict with", "Conflito de chave com", "Conflicto de clave con";
        key_guessed: "guessed", "deduzida", "deducida";
        replayed_bytes: "Same signed content", "Mesmo conteúdo assinado", "Mismo contenido firmado";
        no_key: "No dedup key", "Sem chave de deduplicação", "Sin clave de deduplicación";
        source_gone: "Deleted source", "Origem excluída", "Origen eliminado";
        destination_gone: "deleted destination", "destino excluído", "destino eliminado";
        attr_phone: "Phone", "Telefone", "Teléfono";
        attr_email: "Email", "E-mail", "Correo";
        attr_chat: "Chat", "Chat", "Chat";
        attr_user: "User", "Usuário", "Usuario";
        attr_message_id: "Message ID", "ID da mensagem", "ID del mensaje";
        attr_object: "Object", "Objeto", "Objeto";
        attr_conversation: "Conversation", "Conversa", "Conversación";
        attr_error: "Error", "Erro", "Error";
        attr_account: "Account", "Conta", "Cuenta";
        attr_provider_status: "Provider status", "Status no provedor", "Estado del proveedor";
        facts: "Details", "Detalhes", "Detalles";
        replay_event: "Replay…", "Reenviar…", "Reenviar…";
        replay_event_title: "Replay failed deliveries?", "Reenviar entregas com falha?", "¿Reenviar las entregas fallidas?";
        replay_event_text: "The failed deliveries of this event will be sent again, with the same payload, to:", "As entregas com falha deste evento serão enviadas novamente, com o mesmo conteúdo, para:", "Las entregas fallidas de este evento se enviarán de nuevo, con el mismo contenido, a:";
        reveal: "Reveal", "Revelar", "Revelar";
        reveal_title: "Reveal masked values?", "Revelar valores ocultos?", "¿Revelar los valores ocultos?";
        reveal_text: "Secrets, phone numbers and addresses will be shown once, on the next page. The timeline of this event records that you viewed them.", "Segredos, telefones e endereços serão exibidos uma única vez, na próxima página. A linha do tempo deste evento registrará que você os visualizou.", "Los secretos, teléfonos y direcciones se mostrarán una sola vez, en la página siguiente. La cronología de este evento registrará que usted los vio.";
        revealed: "Masked values are visible on this page. It is shown once, and the timeline records that you viewed it.", "Os valores ocultos estão visíveis nesta página. Ela é exibida uma única vez, e a linha do tempo registra que você a visualizou.", "Los valores ocultos están visibles en esta página. Se muestra una sola vez, y la cronología registra que usted la vio.";
        hide: "Mask values", "Ocultar valores", "Ocultar valores";
        deliveries: "Deliveries", "Entregas", "Entregas";
        deliveries_none: "No deliveries: no route matched this event.", "Sem entregas: nenhuma rota se aplica a este evento.", "Sin entregas: ninguna ruta se aplica a este evento.";
        delivery_more: "{} more delivery is not shown.", "Há mais {} entrega que não é exibida.", "Hay {} entrega más que no se muestra.";
        deliveries_more: "{} more deliveries are not shown.", "Há mais {} entregas que não são exibidas.", "Hay {} entregas más que no se muestran.";
        due: "Next attempt", "Próxima tentativa", "Próximo intento";
        ordering_key: "Ordering key", "Chave de ordenação", "Clave de orden";
        replay_of: "Replay of", "Reenvio de", "Reenvío de";
        replayed_as: "Replayed as", "Reenviada como", "Reenviada como";
        sent_id: "Provider message ID", "ID da mensagem no provedor", "ID del mensaje en el proveedor";
        attempts_none: "No attempts yet.", "Nenhuma tentativa ainda.", "Todavía no hay intentos.";
        attempts_removed: "The retention policy removed the attempt log.", "O registro das tentativas foi removido pela política de retenção.", "La política de retención eliminó el registro de los intentos.";
        attempt_older: "{} earlier attempt", "{} tentativa anterior", "{} intento anterior";
        attempts_older: "{} earlier attempts", "{} tentativas anteriores", "{} intentos anteriores";
        attempt: "Attempt {}", "Tentativa {}", "Intento {}";
        response: "Response", "Resposta", "Respuesta";
        no_response: "No response", "Sem resposta", "Sin respuesta";
        delivered: "Delivered", "Entregue", "Entregado";
        dns: "DNS", "DNS", "DNS";
        connect: "Connect", "Conexão", "Conexión";
        tls: "TLS", "TLS", "TLS";
        first_byte: "First byte", "Primeiro byte", "Primer byte";
        total: "Total", "Total", "Total";
        rest: "Other", "Outros", "Otros";
        reused: "Connection reused", "Conexão reutilizada", "Conexión reutilizada";
        replay_title: "Replay to {}?", "Reenviar para {}?", "¿Reenviar a {}?";
        replay_what: "Payload", "Conteúdo", "Contenido";
        replay_body: "unchanged", "sem alterações", "sin cambios";
        replay_when: "When", "Quando", "Cuándo";
        replay_now: "Now, or as soon as the destination accepts deliveries", "Agora, ou assim que o destino aceitar entregas", "Ahora, o en cuanto el destino acepte entregas";
        replay_earlier: "Earlier attempts", "Tentativas anteriores", "Intentos anteriores";
        replay_done: "Replay queued", "Reenvio na fila", "Reenvío en cola";
        replay_warn: "This event was already delivered. The receiver will get it twice.", "Este evento já foi entregue. O destinatário vai recebê-lo duas vezes.", "Este evento ya se entregó. El destinatario lo recibirá dos veces.";
        cancel_delivery: "Cancel delivery", "Cancelar entrega", "Cancelar entrega";
        cancel_title: "Cancel the delivery to {}?", "Cancelar a entrega para {}?", "¿Cancelar la entrega a {}?";
        cancel_text: "It will not be attempted again. You can replay it later.", "Não haverá novas tentativas. Você pode reenviá-la depois.", "No habrá más intentos. Puede reenviarla más tarde.";
        cancel_keep: "Keep delivery", "Manter entrega", "Mantener entrega";
        cancel_done: "Delivery cancelled", "Entrega cancelada", "Entrega cancelada";
        timeline: "Timeline", "Linha do tempo", "Cronología";
        duplicates_lead: "Requests with the same dedup key. They were not delivered.", "Requisições com a mesma chave de deduplicação. Elas não foram entregues.", "Solicitudes con la misma clave de deduplicación. No se entregaron.";
        duplicates_more: "{} in total; only the first ones are stored.", "{} no total; só as primeiras são armazenadas.", "{} en total; solo se guardan los primeros.";
        duplicate: "Duplicate {}", "Duplicata {}", "Duplicado {}";
        same_bytes: "Identical body", "Corpo idêntico", "Cuerpo idéntico";
        other_bytes: "Different body", "Corpo diferente", "Cuerpo diferente";
        delivered_as: "Delivered as", "Entregue como", "Entregado como";
        compare: "Compare", "Comparar", "Comparar";
        compare_title: "Compare with duplicate {}", "Comparar com a duplicata {}", "Comparar con el duplicado {}";
        compared_json: "Compared as JSON; whitespace and the order of fields are ignored.", "Comparação como JSON; espaços e ordem dos campos são ignorados.", "Comparación como JSON; se ignoran los espacios y el orden de los campos.";
        compared_text: "Compared line by line.", "Comparação linha por linha.", "Comparación línea por línea.";
        compared_bytes: "Compared byte by byte.", "Comparação byte a byte.", "Comparación byte por byte.";
        compared_same: "The bodies are identical.", "O conteúdo é idêntico.", "El contenido es idéntico.";
        compared_gone: "The retention policy removed the bodies, so they cannot be compared.", "O conteúdo foi removido pela política de retenção e não pode ser comparado.", "La política de retención eliminó el contenido y no se puede comparar.";
        diff_none: "No differences apart from formatting or masked values.", "Nenhuma diferença além da formatação ou de valores ocultos.", "Sin diferencias, aparte del formato o de los valores ocultos.";
        diff_cut: "The comparison was shortened because the bodies are large or very different.", "A comparação foi abreviada porque o conteúdo é grande ou muito diferente.", "La comparación se abrevió porque el contenido es grande o muy distinto.";
        diff_masked_one: "{} secret value is masked and not compared.", "{} valor secreto está oculto e não é comparado.", "{} valor secreto está oculto y no se compara.";
        diff_masked: "{} secret values are masked and not compared.", "{} valores secretos estão ocultos e não são comparados.", "{} valores secretos están ocultos y no se comparan.";
        change: "Change", "Alteração", "Cambio";
        before: "Original", "Original", "Original";
        after: "Duplicate", "Duplicata", "Duplicado";
        added: "Added", "Adicionado", "Agregado";
        removed: "Removed", "Removido", "Eliminado";
        changed: "Changed", "Alterado", "Cambiado";
        anyway: "Deliver anyway", "Entregar mesmo assim", "Entregar de todos modos";
        anyway_title: "Deliver duplicate {} as a new event?", "Entregar a duplicata {} como um novo evento?", "¿Entregar el duplicado {} como un evento nuevo?";
        anyway_text: "Its body becomes a new event without a dedup key and follows your current routes. You can do this only once.", "O conteúdo dela se torna um novo evento, sem chave de deduplicação, que segue as rotas atuais. Isso só pode ser feito uma vez.", "Su contenido se convierte en un evento nuevo, sin clave de deduplicación, que sigue las rutas actuales. Solo se puede hacer una vez.";
        anyway_button: "Deliver", "Entregar", "Entregar";
        anyway_done: "Delivered as a new event", "Entregue como um novo evento", "Entregado como un evento nuevo";
        body_raw: "As received:", "Como recebido:", "Tal como se recibió:";
        body_empty: "The body is empty.", "O corpo está vazio.", "El cuerpo está vacío.";
        body_removed: "The retention policy removed the body.", "O corpo foi removido pela política de retenção.", "La política de retención eliminó el cuerpo.";
        body_undecodable: "The body cannot be shown: its encoding could not be decoded, so secrets in it cannot be masked.", "O corpo não pode ser exibido: não foi possível decodificá-lo e, portanto, ocultar os segredos que ele contém.", "No se puede mostrar el cuerpo: no se pudo decodificar y, por lo tanto, tampoco ocultar los secretos que contiene.";
        body_binary: "Binary content. First bytes:", "Conteúdo binário. Primeiros bytes:", "Contenido binario. Primeros bytes:";
        body_cut: "Only the first {} are shown.", "Somente os primeiros {} são exibidos.", "Solo se muestran los primeros {}.";
        masked_values: "Secret values are masked.", "Os valores secretos estão ocultos.", "Los valores secretos están ocultos.";
        download: "Download", "Baixar", "Descargar";
        raw: "Raw", "Original", "Original";
        pretty: "Pretty", "Formatado", "Con formato";
        tree: "Tree", "Árvore", "Árbol";
        load_all: "Load full body", "Carregar corpo completo", "Cargar cuerpo completo";
        show_more: "Show more", "Mostrar mais", "Mostrar más";
        copy_value: "Copy value", "Copiar valor", "Copiar valor";
        copy_path: "Copy path", "Copiar caminho", "Copiar ruta";
        find: "Search body", "Buscar no corpo", "Buscar en el cuerpo";
        not_found: "Not found", "Não encontrado", "No encontrado";
        not_json: "The body is not JSON.", "O corpo não é JSON.", "El cuerpo no es JSON.";
        curl: "Copy as curl", "Copiar como curl", "Copiar como curl";
        curl_source: "The request as received. Secrets are replaced by shell variables.", "A requisição como foi recebida. Os segredos são substituídos por variáveis do shell.", "La solicitud tal como se recibió. Los secretos se reemplazan por variables del shell.";
        curl_destination: "The request sent to {}, without headers added by the gateway such as signatures.", "A requisição enviada para {}, sem os cabeçalhos que o gateway adiciona, como assinaturas.", "La solicitud enviada a {}, sin los encabezados que agrega el gateway, como las firmas.";
        curl_none: "This delivery does not use HTTP.", "Esta entrega não usa HTTP.", "Esta entrega no usa HTTP.";
        curl_file: "Download the body as body.bin first: it is large or contains bytes that cannot be pasted.", "Antes, baixe o corpo como body.bin: ele é grande ou contém bytes que não podem ser colados.", "Antes, descargue el cuerpo como body.bin: es grande o contiene bytes que no se pueden pegar.";
    }
);

impl EventTexts {
    /// The label of an attribute; unknown attributes keep the name from the API.
    pub(crate) fn attribute<'w>(&self, name: &'w str) -> &'w str {
        self.by_code("attr", name)
    }
}
