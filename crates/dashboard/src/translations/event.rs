//! Words of the page of one event, and of its duplicates.

crate::lang::words!(
    /// What the page of one event says.
    EventTexts {
        title: "Event", "Evento", "Evento";
        received: "Received", "Recebido", "Recibido";
        from: "Sender", "Remetente", "Remitente";
        address: "ApiPath", "Endereço", "Dirección";
        size: "Size", "Tamanho", "Tamaño";
        id: "Id", "Id", "Id";
        copy_id: "Copy id", "Copiar id", "Copiar id";
        no_key: "none: it is a duplicate of nothing", "nenhuma: não é duplicata de nada", "ninguna: no es duplicado de nada";
        source_gone: "a deleted source", "uma origem apagada", "un origen eliminado";
        destination_gone: "a deleted destination", "um destino apagado", "un destino eliminado";
        attr_phone: "Phone", "Telefone", "Teléfono";
        attr_email: "Email", "E-mail", "Correo";
        attr_chat: "Chat", "Conversa", "Chat";
        attr_user: "User", "Usuário", "Usuario";
        attr_message_id: "Message", "Mensagem", "Mensaje";
        attr_object: "Object", "Objeto", "Objeto";
        attr_conversation: "Thread", "Conversa", "Conversación";
        attr_error: "Error", "Erro", "Error";
        attr_account: "Account", "Conta", "Cuenta";
        attr_provider_status: "Status at the provider", "Estado no provedor", "Estado en el proveedor";
        facts: "What it is", "O que é", "Qué es";
        replay_event: "Replay…", "Reenviar…", "Reenviar…";
        replay_event_title: "Deliver again what is dead?", "Entregar de novo o que está morto?", "¿Entregar de nuevo lo que está muerto?";
        replay_event_text: "The dead deliveries of this event go again, with the same content, to:", "As entregas mortas deste evento vão de novo, com o mesmo conteúdo, para:", "Las entregas muertas de este evento van de nuevo, con el mismo contenido, a:";
        reveal: "Reveal", "Revelar", "Revelar";
        reveal_title: "Show what is masked?", "Mostrar o que está oculto?", "¿Mostrar lo que está oculto?";
        reveal_text: "Secrets, phones and addresses are shown idempotency_key, on the next page. The story of this event will say that you looked.", "Segredos, telefones e endereços são mostrados uma vez, na próxima página. A história deste evento dirá que você olhou.", "Los secretos, teléfonos y direcciones se muestran una vez, en la página siguiente. La historia de este evento dirá que usted miró.";
        revealed: "Nothing is masked on this page. It is shown idempotency_key, and the story says that you looked.", "Nada está oculto nesta página. Ela é mostrada uma vez, e a história diz que você olhou.", "Nada está oculto en esta página. Se muestra una vez, y la historia dice que usted miró.";
        hide: "Mask again", "Ocultar de novo", "Ocultar de nuevo";
        deliveries: "Deliveries", "Entregas", "Entregas";
        deliveries_none: "This event goes nowhere: no route took it.", "Este evento não vai a lugar nenhum: nenhuma rota o aceitou.", "Este evento no va a ninguna parte: ninguna ruta lo tomó.";
        delivery_more: "{} more delivery is not shown here.", "Mais {} entrega não é mostrada aqui.", "{} entrega más no se muestra aquí.";
        deliveries_more: "{} more deliveries are not shown here.", "Mais {} entregas não são mostradas aqui.", "{} entregas más no se muestran aquí.";
        due: "Next attempt", "Próxima tentativa", "Próximo intento";
        in_line: "In line by", "Na fila por", "En fila por";
        replay_of: "In place of", "No lugar de", "En lugar de";
        replayed_by: "Taken over by", "Assumida por", "Continuada por";
        sent_id: "Id at the service", "Id no serviço", "Id en el servicio";
        attempts_none: "Not tried yet.", "Ainda não tentada.", "Aún no se ha intentado.";
        attempts_removed: "Retention has removed the record of the attempts.", "A retenção removeu o registro das tentativas.", "La retención eliminó el registro de los intentos.";
        attempt_older: "{} earlier attempt", "{} tentativa anterior", "{} intento anterior";
        attempts_older: "{} earlier attempts", "{} tentativas anteriores", "{} intentos anteriores";
        attempt: "Attempt {}", "Tentativa {}", "Intento {}";
        answer: "Answer", "Resposta", "Respuesta";
        no_answer: "no answer", "sem resposta", "sin respuesta";
        arrived: "arrived", "chegou", "llegó";
        dns: "DNS", "DNS", "DNS";
        connect: "connect", "conexão", "conexión";
        tls: "TLS", "TLS", "TLS";
        first_byte: "first byte", "primeiro byte", "primer byte";
        total: "total", "total", "total";
        rest: "rest", "resto", "resto";
        reused: "connection reused", "conexão reutilizada", "conexión reutilizada";
        replay_title: "Replay to {}?", "Reenviar para {}?", "¿Reenviar a {}?";
        replay_what: "What is sent", "O que é enviado", "Qué se envía";
        replay_body: "the same content as before", "o mesmo conteúdo de antes", "el mismo contenido de antes";
        replay_when: "When", "Quando", "Cuándo";
        replay_now: "at idempotency_key, as soon as the destination takes it", "agora, assim que o destino aceitar", "ahora, en cuanto el destino lo acepte";
        replay_earlier: "Earlier attempts", "Tentativas anteriores", "Intentos anteriores";
        replay_to: "Goes to", "Vai para", "Va a";
        replay_about: "About", "Sobre", "Acerca de";
        replay_done: "It is delivered idempotency_key more.", "Está sendo entregue mais uma vez.", "Se entrega una vez más.";
        replay_warn: "It has arrived before: the receiver gets it twice.", "Já chegou antes: quem recebe o terá duas vezes.", "Ya llegó antes: quien recibe lo tendrá dos veces.";
        cancel_delivery: "Cancel delivery", "Cancelar entrega", "Cancelar entrega";
        cancel_title: "Cancel the delivery to {}?", "Cancelar a entrega para {}?", "¿Cancelar la entrega a {}?";
        cancel_text: "It is not tried again. It can be replayed later.", "Não será tentada de novo. Pode ser reenviada depois.", "No se intenta de nuevo. Se puede reenviar más tarde.";
        cancel_keep: "Keep it", "Manter", "Mantener";
        cancel_done: "The delivery is cancelled.", "A entrega foi cancelada.", "La entrega fue cancelada.";
        story: "Story", "História", "Historia";
        duplicates: "Duplicates", "Duplicatas", "Duplicados";
        duplicates_lead: "The same key came again. Duplicates are not delivered.", "A mesma chave veio de novo. Duplicatas não são entregues.", "La misma clave llegó de nuevo. Los duplicados no se entregan.";
        duplicates_more: "{} in all; only the first are kept.", "{} no total; só as primeiras são guardadas.", "{} en total; solo se guardan los primeros.";
        duplicate: "Duplicate {}", "Duplicata {}", "Duplicado {}";
        same_bytes: "same bytes", "mesmos bytes", "mismos bytes";
        other_bytes: "other bytes", "outros bytes", "otros bytes";
        delivered_as: "Delivered as", "Entregue como", "Entregado como";
        compare: "Compare", "Comparar", "Comparar";
        compare_title: "Duplicate {} beside the first", "Duplicata {} ao lado do primeiro", "Duplicado {} junto al primero";
        compared_json: "Compared by structure: order of members and space mean nothing.", "Comparados pela estrutura: a ordem dos campos e os espaços não contam.", "Comparados por estructura: el orden de los campos y los espacios no cuentan.";
        compared_text: "Compared line by line.", "Comparados linha por linha.", "Comparados línea por línea.";
        compared_bytes: "Compared byte by byte.", "Comparados byte por byte.", "Comparados byte por byte.";
        compared_same: "The bytes are the same.", "Os bytes são os mesmos.", "Los bytes son los mismos.";
        compared_gone: "Retention has removed what could be compared.", "A retenção removeu o que se poderia comparar.", "La retención eliminó lo que se podría comparar.";
        diff_none: "Nothing differs but the way of writing, or what is masked.", "Nada difere além da forma de escrever, ou do que está oculto.", "Nada difiere salvo la forma de escribir, o lo que está oculto.";
        diff_cut: "Something was cut: the bodies are large or differ much.", "Algo foi cortado: os conteúdos são grandes ou diferem muito.", "Algo fue cortado: los contenidos son grandes o difieren mucho.";
        diff_masked_one: "{} secret value is masked and not compared.", "{} valor secreto está oculto e não é comparado.", "{} valor secreto está oculto y no se compara.";
        diff_masked: "{} secret values are masked and not compared.", "{} valores secretos estão ocultos e não são comparados.", "{} valores secretos están ocultos y no se comparan.";
        path: "Path", "Caminho", "Ruta";
        change: "Change", "Mudança", "Cambio";
        before: "First", "Primeiro", "Primero";
        after: "Duplicate", "Duplicata", "Duplicado";
        added: "added", "adicionado", "añadido";
        removed: "removed", "removido", "eliminado";
        changed: "changed", "alterado", "cambiado";
        anyway: "Not a duplicate: deliver anyway", "Não é duplicata: entregar assim mesmo", "No es duplicado: entregar de todos modos";
        anyway_title: "Deliver duplicate {} as an event of its own?", "Entregar a duplicata {} como um evento próprio?", "¿Entregar el duplicado {} como un evento propio?";
        anyway_text: "Its own content becomes a new event without a key and goes where the routes lead now. This is done idempotency_key.", "Seu próprio conteúdo se torna um novo evento sem chave e vai para onde as rotas levam agora. Isto é feito uma vez.", "Su propio contenido se convierte en un evento nuevo sin clave y va adonde llevan las rutas ahora. Se hace una sola vez.";
        anyway_button: "Deliver", "Entregar", "Entregar";
        anyway_done: "It is an event of its own now: this one.", "Agora é um evento próprio: este.", "Ahora es un evento propio: este.";
        body: "Body", "Conteúdo", "Contenido";
        body_empty: "It came without a body.", "Veio sem conteúdo.", "Llegó sin contenido.";
        body_removed: "Retention has removed the body.", "A retenção removeu o conteúdo.", "La retención eliminó el contenido.";
        body_opaque: "It is packed in a way that cannot be looked into, so secrets in it cannot be masked.", "Está compactado de um modo que não se pode examinar, então segredos nele não podem ser ocultados.", "Está comprimido de un modo que no se puede examinar, así que los secretos no se pueden ocultar.";
        body_binary: "It is not text. Its first bytes:", "Não é texto. Seus primeiros bytes:", "No es texto. Sus primeros bytes:";
        body_cut: "Only the first {} are shown.", "Só os primeiros {} são mostrados.", "Solo se muestran los primeros {}.";
        masked_values: "Secret values are masked.", "Valores secretos estão ocultos.", "Los valores secretos están ocultos.";
        download: "Download", "Baixar", "Descargar";
        raw: "Raw", "Bruto", "Crudo";
        pretty: "Pretty", "Formatado", "Formateado";
        tree: "Tree", "Árvore", "Árbol";
        load_all: "Load it all", "Carregar tudo", "Cargar todo";
        show_more: "Show more", "Mostrar mais", "Mostrar más";
        copy_value: "Copy value", "Copiar valor", "Copiar valor";
        copy_path: "Copy path", "Copiar caminho", "Copiar ruta";
        find: "Find in the body", "Procurar no conteúdo", "Buscar en el contenido";
        not_found: "Not found", "Não encontrado", "No encontrado";
        not_json: "This is not JSON.", "Isto não é JSON.", "Esto no es JSON.";
        headers: "Headers", "Cabeçalhos", "Encabezados";
        curl: "As curl", "Como curl", "Como curl";
        curl_source: "The request as it came to the source. What is secret is a variable of the shell.", "A requisição como chegou à origem. O que é secreto é uma variável do shell.", "La solicitud como llegó al origen. Lo secreto es una variable del shell.";
        curl_destination: "What is sent to {}. Headers that the gateway adds, such as a signature, are left out.", "O que é enviado para {}. Cabeçalhos que o gateway acrescenta, como uma assinatura, ficam de fora.", "Lo que se envía a {}. Los encabezados que añade la pasarela, como una firma, se omiten.";
        curl_none: "This delivery goes to no HTTP address.", "Esta entrega não vai para um endereço HTTP.", "Esta entrega no va a una dirección HTTP.";
        curl_file: "Download the body first, as body.bin: it is large or holds bytes that cannot be typed.", "Baixe o conteúdo antes, como body.bin: é grande ou tem bytes que não se podem digitar.", "Descargue antes el contenido, como body.bin: es grande o tiene bytes que no se pueden teclear.";
    }
);

impl EventTexts {
    /// How an attribute is called; one that is not known stands for itself.
    pub(crate) fn attribute<'w>(&self, word: &'w str) -> &'w str {
        match word {
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
