//! Texts of the page of one event, and of its duplicates.

crate::lang::translations!(
    EventTexts {
        title: "Event", "Evento", "Evento";
        received: "Received", "Recebido", "Recibido";
        from: "Client IP", "IP do cliente", "IP del cliente";
        address: "Path", "Caminho", "Ruta";
        size: "Size", "Tamanho", "Tamaño";
        id: "ID", "ID", "ID";
        copy_id: "Copy ID", "Copiar ID", "Copiar ID";
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
        reveal_title: "Reveal masked values?", "Revelar valores ocultos?", "¿Mostrar los valores ocultos?";
        reveal_text: "Secrets, phone numbers and addresses will be shown once, on the next page. The timeline of this event records that you viewed them.", "Segredos, telefones e endereços serão mostrados uma vez, na próxima página. A linha do tempo deste evento registra que você os visualizou.", "Los secretos, teléfonos y direcciones se mostrarán una vez, en la página siguiente. La cronología de este evento registra que usted los vio.";
        revealed: "Masked values are visible on this page. It is shown once, and the timeline records that you viewed it.", "Os valores ocultos estão visíveis nesta página. Ela é mostrada uma vez, e a linha do tempo registra que você a visualizou.", "Los valores ocultos están visibles en esta página. Se muestra una vez, y la cronología registra que usted la vio.";
        hide: "Mask values", "Ocultar valores", "Ocultar valores";
        deliveries: "Deliveries", "Entregas", "Entregas";
        deliveries_none: "No deliveries: no route matched this event.", "Nenhuma entrega: nenhuma rota correspondeu a este evento.", "Sin entregas: ninguna ruta coincidió con este evento.";
        delivery_more: "{} more delivery is not shown.", "Mais {} entrega não é mostrada.", "{} entrega más no se muestra.";
        deliveries_more: "{} more deliveries are not shown.", "Mais {} entregas não são mostradas.", "{} entregas más no se muestran.";
        due: "Next attempt", "Próxima tentativa", "Próximo intento";
        ordering_key: "Ordering key", "Chave de ordenação", "Clave de orden";
        replay_of: "Replay of", "Reenvio de", "Reenvío de";
        replayed_as: "Replayed as", "Reenviada como", "Reenviada como";
        sent_id: "Provider message ID", "ID no provedor", "ID del proveedor";
        attempts_none: "No attempts yet.", "Nenhuma tentativa ainda.", "Todavía no hay intentos.";
        attempts_removed: "The attempt log was removed by retention.", "O registro das tentativas foi removido pela retenção.", "La retención eliminó el registro de los intentos.";
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
        rest: "Rest", "Restante", "Resto";
        reused: "Connection reused", "Conexão reutilizada", "Conexión reutilizada";
        replay_title: "Replay to {}?", "Reenviar para {}?", "¿Reenviar a {}?";
        replay_what: "Payload", "Conteúdo", "Contenido";
        replay_body: "unchanged", "sem alterações", "sin cambios";
        replay_when: "When", "Quando", "Cuándo";
        replay_now: "Now, or as soon as the destination accepts deliveries", "Agora, ou assim que o destino aceitar entregas", "Ahora, o en cuanto el destino acepte entregas";
        replay_earlier: "Earlier attempts", "Tentativas anteriores", "Intentos anteriores";
        replay_to: "Destination", "Destino", "Destino";
        replay_about: "Contact", "Contato", "Contacto";
        replay_done: "Replay queued", "Reenvio na fila", "Reenvío en cola";
        replay_warn: "This event was already delivered. The receiver will get it twice.", "Este evento já foi entregue. O destinatário vai recebê-lo duas vezes.", "Este evento ya se entregó. El destinatario lo recibirá dos veces.";
        cancel_delivery: "Cancel delivery", "Cancelar entrega", "Cancelar entrega";
        cancel_title: "Cancel the delivery to {}?", "Cancelar a entrega para {}?", "¿Cancelar la entrega a {}?";
        cancel_text: "It will not be attempted again. You can replay it later.", "Não haverá novas tentativas. Você pode reenviá-la depois.", "No habrá más intentos. Puede reenviarla más tarde.";
        cancel_keep: "Keep delivery", "Manter entrega", "Mantener entrega";
        cancel_done: "Delivery cancelled", "Entrega cancelada", "Entrega cancelada";
        timeline: "Timeline", "Linha do tempo", "Cronología";
        duplicates: "Duplicates", "Duplicatas", "Duplicados";
        duplicates_lead: "Requests with the same dedup key. They were not delivered.", "Requisições com a mesma chave de deduplicação. Não foram entregues.", "Solicitudes con la misma clave de deduplicación. No se entregaron.";
        duplicates_more: "{} in total; only the first ones are stored.", "{} no total; só as primeiras são armazenadas.", "{} en total; solo se guardan los primeros.";
        duplicate: "Duplicate {}", "Duplicata {}", "Duplicado {}";
        same_bytes: "Identical body", "Corpo idêntico", "Cuerpo idéntico";
        other_bytes: "Different body", "Corpo diferente", "Cuerpo diferente";
        delivered_as: "Delivered as", "Entregue como", "Entregado como";
        compare: "Compare", "Comparar", "Comparar";
        compare_title: "Compare with duplicate {}", "Comparar com a duplicata {}", "Comparar con el duplicado {}";
        compared_json: "Compared as JSON; whitespace and the order of fields are ignored.", "Comparação como JSON; espaços e a ordem dos campos são ignorados.", "Comparación como JSON; se ignoran los espacios y el orden de los campos.";
        compared_text: "Compared line by line.", "Comparação linha por linha.", "Comparación línea por línea.";
        compared_bytes: "Compared byte by byte.", "Comparação byte a byte.", "Comparación byte por byte.";
        compared_same: "The bodies are identical.", "Os corpos são idênticos.", "Los cuerpos son idénticos.";
        compared_gone: "The bodies were removed by retention and cannot be compared.", "Os corpos foram removidos pela retenção e não podem ser comparados.", "La retención eliminó los cuerpos y no se pueden comparar.";
        diff_none: "No differences apart from formatting or masked values.", "Nenhuma diferença além da formatação ou de valores ocultos.", "Sin diferencias aparte del formato o de valores ocultos.";
        diff_cut: "The comparison was shortened because the bodies are large or very different.", "A comparação foi abreviada porque os corpos são grandes ou muito diferentes.", "La comparación se acortó porque los cuerpos son grandes o muy distintos.";
        diff_masked_one: "{} secret value is masked and not compared.", "{} valor secreto está oculto e não é comparado.", "{} valor secreto está oculto y no se compara.";
        diff_masked: "{} secret values are masked and not compared.", "{} valores secretos estão ocultos e não são comparados.", "{} valores secretos están ocultos y no se comparan.";
        path: "Path", "Caminho", "Ruta";
        change: "Change", "Alteração", "Cambio";
        before: "Original", "Original", "Original";
        after: "Duplicate", "Duplicata", "Duplicado";
        added: "Added", "Adicionado", "Añadido";
        removed: "Removed", "Removido", "Eliminado";
        changed: "Changed", "Alterado", "Cambiado";
        anyway: "Deliver anyway", "Entregar mesmo assim", "Entregar igualmente";
        anyway_title: "Deliver duplicate {} as a new event?", "Entregar a duplicata {} como um novo evento?", "¿Entregar el duplicado {} como un evento nuevo?";
        anyway_text: "Its body becomes a new event without a dedup key and follows your current routes. You can do this only once.", "O corpo se torna um novo evento sem chave de deduplicação e segue suas rotas atuais. Isso só pode ser feito uma vez.", "Su cuerpo se convierte en un evento nuevo sin clave de deduplicación y sigue sus rutas actuales. Solo se puede hacer una vez.";
        anyway_button: "Deliver", "Entregar", "Entregar";
        anyway_done: "Delivered as a new event", "Entregue como um novo evento", "Entregado como un evento nuevo";
        body: "Body", "Corpo", "Cuerpo";
        body_empty: "The body is empty.", "O corpo está vazio.", "El cuerpo está vacío.";
        body_removed: "The body was removed by retention.", "O corpo foi removido pela retenção.", "La retención eliminó el cuerpo.";
        body_undecodable: "The body cannot be shown: its encoding could not be decoded, so secrets in it cannot be masked.", "O corpo não pode ser mostrado: não foi possível decodificá-lo, então os segredos nele não podem ser ocultados.", "No se puede mostrar el cuerpo: no se pudo decodificar, así que no se pueden ocultar los secretos que contenga.";
        body_binary: "Binary content. First bytes:", "Conteúdo binário. Primeiros bytes:", "Contenido binario. Primeros bytes:";
        body_cut: "Only the first {} are shown.", "Só os primeiros {} são mostrados.", "Solo se muestran los primeros {}.";
        masked_values: "Secret values are masked.", "Valores secretos estão ocultos.", "Los valores secretos están ocultos.";
        download: "Download", "Baixar", "Descargar";
        raw: "Raw", "Bruto", "Sin formato";
        pretty: "Pretty", "Formatado", "Con formato";
        tree: "Tree", "Árvore", "Árbol";
        load_all: "Load full body", "Carregar corpo completo", "Cargar cuerpo completo";
        show_more: "Show more", "Mostrar mais", "Mostrar más";
        copy_value: "Copy value", "Copiar valor", "Copiar valor";
        copy_path: "Copy path", "Copiar caminho", "Copiar ruta";
        find: "Search body", "Buscar no corpo", "Buscar en el cuerpo";
        not_found: "Not found", "Não encontrado", "No encontrado";
        not_json: "This is not JSON.", "Isto não é JSON.", "Esto no es JSON.";
        headers: "Headers", "Cabeçalhos", "Encabezados";
        curl: "Copy as curl", "Copiar como curl", "Copiar como curl";
        curl_source: "The request as the source received it. Secrets are replaced by shell variables.", "A requisição como a origem a recebeu. Segredos são substituídos por variáveis do shell.", "La solicitud como la recibió el origen. Los secretos se reemplazan por variables del shell.";
        curl_destination: "The request sent to {}, without headers added by the gateway such as signatures.", "A requisição enviada para {}, sem os cabeçalhos que o gateway acrescenta, como assinaturas.", "La solicitud enviada a {}, sin los encabezados que añade el gateway, como las firmas.";
        curl_none: "This delivery does not use HTTP.", "Esta entrega não usa HTTP.", "Esta entrega no usa HTTP.";
        curl_file: "Download the body as body.bin first: it is large or contains bytes that cannot be pasted.", "Baixe antes o corpo como body.bin: ele é grande ou contém bytes que não podem ser colados.", "Descargue antes el cuerpo como body.bin: es grande o contiene bytes que no se pueden pegar.";
    }
);

impl EventTexts {
    /// The label of an attribute; unknown attributes keep the name from the API.
    pub(crate) fn attribute<'w>(&self, name: &'w str) -> &'w str {
        match name {
            "phone" => self.attr_phone,
            "email" => self.attr_email,
            "chat" => self.attr_chat,
            "user" => self.attr_user,
            "message_id" => self.attr_message_id,
            "object" => self.attr_object,
            "conversation" => self.attr_conversation,
            "error" => self.attr_error,
            "account" => self.attr_account,
            "provider_status" => self.attr_provider_status,
            other => other,
        }
    }
}
