//! Texts of an event's timeline, one for each kind of entry.

crate::lang::translations!(
    TimelineTexts {
        received: "Received ({})", "Recebido ({})", "Recibido ({})";
        body_removed: "The retention policy removed the body.", "O corpo foi removido pela política de retenção.", "La política de retención eliminó el cuerpo.";
        verified: "Verified: {}", "Verificado: {}", "Verificado: {}";
        unverified: "Not verified: this source has no signature check", "Não verificado: esta origem não verifica assinaturas", "Sin verificar: este origen no comprueba firmas";
        released: "Not verified: released from quarantine manually", "Não verificado: liberado da quarentena manualmente", "Sin verificar: liberado de la cuarentena manualmente";
        key: "Dedup key {}", "Chave de deduplicação {}", "Clave de deduplicación {}";
        key_from: "Dedup key {} (from {})", "Chave de deduplicação {} (origem: {})", "Clave de deduplicación {} (origen: {})";
        key_guessed: "Dedup key {} (guessed from {})", "Chave de deduplicação {} (deduzida de: {})", "Clave de deduplicación {} (deducida de: {})";
        key_conflict: "Key conflict: the same key came with another body, so this is a separate event. The other event:", "Conflito de chave: a mesma chave veio com outro corpo, por isso este é um evento separado. O outro evento:", "Conflicto de clave: la misma clave llegó con otro cuerpo, por eso este es un evento aparte. El otro evento:";
        key_body_field: "body field {}", "campo {} do corpo", "campo {} del cuerpo";
        key_header: "header {}", "cabeçalho {}", "encabezado {}";
        key_hash: "a hash of the body", "hash do corpo", "hash del cuerpo";
        no_key: "No dedup key found; the event is never treated as a duplicate", "Nenhuma chave de deduplicação encontrada; o evento nunca é tratado como duplicata", "No se encontró clave de deduplicación; el evento nunca se trata como duplicado";
        no_key_duplicate: "No dedup key: the key belongs to the original event", "Sem chave de deduplicação: a chave pertence ao evento original", "Sin clave de deduplicación: la clave pertenece al evento original";
        ping: "Not routed: test request from the provider", "Não roteado: requisição de teste do provedor", "No enrutado: solicitud de prueba del proveedor";
        filter_false: "Not routed to {}: filter did not match", "Não roteado para {}: não passou no filtro", "No enrutado a {}: no pasó el filtro";
        filter_failed: "Not routed to {}: filter failed ({})", "Não roteado para {}: erro no filtro ({})", "No enrutado a {}: error en el filtro ({})";
        not_json: "Not routed to {}: the route has a filter and the body is not JSON", "Não roteado para {}: a rota tem um filtro e o corpo não é JSON", "No enrutado a {}: la ruta tiene un filtro y el cuerpo no es JSON";
        same_destination: "Not routed to {} again: an earlier route already delivers there", "Não roteado de novo para {}: uma rota anterior já entrega a esse destino", "No enrutado otra vez a {}: una ruta anterior ya entrega a ese destino";
        dropped: "Not routed to {}: dropped by the transform", "Não roteado para {}: descartado pela transformação", "No enrutado a {}: descartado por la transformación";
        created: "Delivery to {} queued", "Entrega para {} na fila", "Entrega a {} en cola";
        created_again: "Replay to {} queued", "Reenvio para {} na fila", "Reenvío a {} en cola";
        attempt_ok: "Attempt {} to {} succeeded", "Tentativa {} para {} bem-sucedida", "Intento {} a {} exitoso";
        attempt_failed: "Attempt {} to {} failed", "Tentativa {} para {} falhou", "Intento {} a {} fallido";
        attempt_removed: "{} attempt to {} (log removed by the retention policy)", "{} tentativa para {} (registro removido pela política de retenção)", "{} intento a {} (registro eliminado por la política de retención)";
        attempts_removed: "{} attempts to {} (log removed by the retention policy)", "{} tentativas para {} (registros removidos pela política de retenção)", "{} intentos a {} (registros eliminados por la política de retención)";
        duplicate: "Duplicate received after {}", "Duplicata recebida após {}", "Duplicado recibido después de {}";
        duplicate_differs: "Duplicate with a different body received after {}; not delivered", "Duplicata com corpo diferente recebida após {}; não entregue", "Duplicado con un cuerpo diferente recibido después de {}; no se entregó";
        duplicate_replayed: "The same signed content received under another key after {}; not delivered", "O mesmo conteúdo assinado foi recebido com outra chave após {}; não entregue", "El mismo contenido firmado se recibió con otra clave después de {}; no se entregó";
        duplicates: "{} duplicates in total; this is the latest", "{} duplicatas no total; esta é a mais recente", "{} duplicados en total; este es el más reciente";
        revived: "Delivery to {} revived by a duplicate", "Entrega para {} reativada por uma duplicata", "Entrega a {} reactivada por un duplicado";
        replayed: "Delivery to {} replayed", "Entrega para {} reenviada", "Entrega a {} reenviada";
        cancelled_not_routed: "Delivery to {} cancelled: the route does not take this event", "Entrega para {} cancelada: a rota não aceita este evento", "Entrega a {} cancelada: la ruta no acepta este evento";
        cancelled: "Delivery to {} cancelled", "Entrega para {} cancelada", "Entrega a {} cancelada";
        lease_expired: "The attempt to {} did not report a result in time; it will be retried", "A tentativa para {} não teve resultado a tempo; haverá nova tentativa", "El intento a {} no tuvo resultado a tiempo; se reintentará";
        recovered: "The gateway stopped during the attempt to {}; it will be retried", "O gateway parou durante a tentativa para {}; haverá nova tentativa", "El gateway se detuvo durante el intento a {}; se reintentará";
        hastened: "The sender retried and is waiting for a response; delivering to {} now", "O remetente reenviou e aguarda a resposta; entregando a {} agora", "El remitente reintentó y espera la respuesta; entregando a {} ahora";
        no_response: "Attempt to {}: no response; it may have been delivered", "Tentativa para {}: sem resposta; pode ter sido entregue", "Intento a {}: sin respuesta; es posible que se haya entregado";
        confirmed: "Delivery to {} confirmed by a status update", "Entrega para {} confirmada por uma atualização de status", "Entrega a {} confirmada por una actualización de estado";
        confirmed_late: "Delivery to {} confirmed by a late response", "Entrega para {} confirmada por uma resposta tardia", "Entrega a {} confirmada por una respuesta tardía";
        refuted: "Status update: the delivery to {} failed", "Atualização de status: a entrega para {} falhou", "Actualización de estado: la entrega a {} falló";
        damaged: "The payload for {} is missing or damaged in storage; delivery abandoned", "O conteúdo para {} está ausente ou corrompido no armazenamento; entrega abandonada", "El contenido para {} falta o está dañado en el almacenamiento; entrega abandonada";
        delivered_anyway: "Duplicate {} delivered anyway as", "Duplicata {} entregue mesmo assim como", "Duplicado {} entregado de todos modos como";
        not_a_duplicate: "Marked \"not a duplicate\"; was duplicate {} of", "Marcado como \"não é duplicata\"; era a duplicata {} de", "Marcado como \"no es duplicado\"; era el duplicado {} de";
        callback_posted: "End of the delivery reported by callback", "Término da entrega informado pelo callback", "Fin de la entrega notificado por el callback";
        callback_lost: "No callback for the delivery to {}: its destination was deleted", "Sem callback para a entrega a {}: o destino foi excluído", "Sin callback para la entrega a {}: el destino fue eliminado";
        answered: "Response to the waiting sender: {}", "Resposta ao remetente em espera: {}", "Respuesta al remitente en espera: {}";
        revealed: "{} viewed masked values", "{} visualizou os valores ocultos", "{} vio los valores ocultos";
        unknown_user: "A user", "Um usuário", "Un usuario";
        next_attempt: "Next attempt:", "Próxima tentativa:", "Próximo intento:";
        gave_up: "No more retries: {}", "Não haverá novas tentativas: {}", "No habrá más intentos: {}";
    }
);
