//! Words of the story of an event: one for each kind of decision.

crate::lang::words!(
    /// What a story says.
    TimelineTexts {
        received: "Received with {}", "Recebido com {}", "Recibido con {}";
        body_removed: "Retention has removed the body.", "A retenção removeu o conteúdo.", "La retención eliminó el contenido.";
        verified: "Verified by {}", "Verificado por {}", "Verificado por {}";
        unverified: "Not verified: the source asks for nothing", "Não verificado: a origem não exige nada", "Sin verificar: el origen no exige nada";
        released: "Not verified: released by hand", "Não verificado: liberado à mão", "Sin verificar: liberado a mano";
        key: "The key is {}", "A chave é {}", "La clave es {}";
        key_from: "The key is {}, found in {}", "A chave é {}, encontrada em {}", "La clave es {}, encontrada en {}";
        key_hash: "a hash of the body", "um hash do conteúdo", "un hash del contenido";
        no_key: "No key was found, so this is a duplicate of nothing", "Nenhuma chave foi encontrada, então não é duplicata de nada", "No se encontró clave, así que no es duplicado de nada";
        no_key_duplicate: "It has no key, because its own is that of another event", "Não tem chave, porque a sua é a de outro evento", "No tiene clave, porque la suya es la de otro evento";
        ping: "The provider only asked whether we are there", "O provedor só perguntou se estamos aqui", "El proveedor solo preguntó si estamos aquí";
        filter_false: "Not for {}: the filter says no", "Não vai para {}: o filtro diz não", "No va a {}: el filtro dice que no";
        filter_failed: "Not for {}: the filter failed ({})", "Não vai para {}: o filtro falhou ({})", "No va a {}: el filtro falló ({})";
        not_json: "Not for {}: it has a filter, and the body is not JSON", "Não vai para {}: há um filtro, e o conteúdo não é JSON", "No va a {}: hay un filtro, y el contenido no es JSON";
        same_destination: "Not for {} again: an earlier route leads there", "Não vai para {} de novo: uma rota anterior já leva lá", "No va a {} otra vez: una ruta anterior ya lleva allí";
        dropped: "Not for {}: the transform dropped it", "Não vai para {}: a transformação o descartou", "No va a {}: la transformación lo descartó";
        created: "To be delivered to {}", "A ser entregue para {}", "Por entregar a {}";
        created_again: "To be delivered to {} idempotency_key more", "A ser entregue para {} mais uma vez", "Por entregar a {} una vez más";
        attempt_ok: "Attempt {} to {} succeeded", "Tentativa {} para {} deu certo", "Intento {} a {} tuvo éxito";
        attempt_failed: "Attempt {} to {} failed", "Tentativa {} para {} falhou", "Intento {} a {} falló";
        attempt_removed: "{} attempt to {}, of which retention has removed the record", "{} tentativa para {}, cujo registro a retenção removeu", "{} intento a {}, cuyo registro eliminó la retención";
        attempts_removed: "{} attempts to {}, of which retention has removed the record", "{} tentativas para {}, cujo registro a retenção removeu", "{} intentos a {}, cuyo registro eliminó la retención";
        duplicate: "Came again after {}", "Veio de novo depois de {}", "Llegó de nuevo después de {}";
        duplicate_differs: "Came again after {} with another body, which was not sent", "Veio de novo depois de {} com outro conteúdo, que não foi enviado", "Llegó de nuevo después de {} con otro contenido, que no se envió";
        duplicates: "Came again {} times in all, last now", "Veio de novo {} vezes ao todo, a última agora", "Llegó de nuevo {} veces en total, la última ahora";
        revived: "A duplicate revived the delivery to {}", "Uma duplicata reviveu a entrega para {}", "Un duplicado revivió la entrega a {}";
        replayed: "The delivery to {} was replayed", "A entrega para {} foi reenviada", "La entrega a {} fue reenviada";
        cancelled: "The delivery to {} was cancelled", "A entrega para {} foi cancelada", "La entrega a {} fue cancelada";
        lease_expired: "Nobody answered for the attempt to {} in time; it is due again", "Ninguém respondeu pela tentativa para {} a tempo; será feita de novo", "Nadie respondió por el intento a {} a tiempo; se hará de nuevo";
        recovered: "The gateway ended during the attempt to {}; it is due again", "O gateway parou durante a tentativa para {}; será feita de novo", "La pasarela se detuvo durante el intento a {}; se hará de nuevo";
        hastened: "The sender came again and waits, so the attempt to {} is due at idempotency_key", "O remetente veio de novo e espera, então a tentativa para {} é feita já", "El remitente llegó de nuevo y espera, así que el intento a {} se hace ya";
        unheard: "The attempt to {} ended without a word, and what it sent may have arrived", "A tentativa para {} terminou sem resposta, e o que enviou pode ter chegado", "El intento a {} terminó sin respuesta, y lo que envió puede haber llegado";
        confirmed: "Confirmed by a status: {} has it", "Confirmado por um status: {} o tem", "Confirmado por un estado: {} lo tiene";
        confirmed_late: "Confirmed by an answer that came late: {} has it", "Confirmado por uma resposta que veio tarde: {} o tem", "Confirmado por una respuesta que llegó tarde: {} lo tiene";
        refuted: "A status says that what was sent to {} has failed", "Um status diz que o que foi enviado para {} falhou", "Un estado dice que lo enviado a {} falló";
        damaged: "What should go to {} is missing or damaged in the store; given up", "O que deveria ir para {} falta ou está danificado no armazenamento; desistiu-se", "Lo que debía ir a {} falta o está dañado en el almacén; se abandonó";
        delivered_anyway: "Duplicate {} was delivered anyway, as", "A duplicata {} foi entregue assim mesmo, como", "El duplicado {} fue entregado de todos modos, como";
        not_a_duplicate: "A person said that it is none: it came as duplicate {} of", "Uma pessoa disse que não é: veio como duplicata {} de", "Una persona dijo que no lo es: llegó como duplicado {} de";
        answered: "The sender that waited was told {}", "O remetente que esperava recebeu a resposta {}", "El remitente que esperaba recibió la respuesta {}";
        revealed: "{} looked at what is masked", "{} olhou o que está oculto", "{} miró lo que está oculto";
        somebody: "Somebody", "Alguém", "Alguien";
        next_attempt: "Next attempt:", "Próxima tentativa:", "Próximo intento:";
        given_up: "Given up: {}", "Desistiu-se: {}", "Se abandonó: {}";
    }
);
