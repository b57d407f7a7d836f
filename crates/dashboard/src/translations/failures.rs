//! Words for failures: classes, reasons, what went wrong on the way, and why it is tried again when it is.

crate::lang::words!(
    /// What failures are called.
    FailureTexts {
        class_transient: "temporary", "temporária", "temporal";
        class_throttled: "throttled", "limitada", "limitada";
        class_permanent: "refused for good", "recusada de vez", "rechazada para siempre";
        class_config: "misconfigured", "mal configurada", "mal configurada";
        class_ambiguous: "nobody knows whether it arrived", "ninguém sabe se chegou", "nadie sabe si llegó";
        reason_max_retries: "all attempts failed", "todas as tentativas falharam", "todos los intentos fallaron";
        reason_invalid_endpoint: "the destination cannot be called like this", "o destino não pode ser chamado assim", "no se puede llamar así al destino";
        reason_payload_error: "the destination does not take this content", "o destino não aceita este conteúdo", "el destino no acepta este contenido";
        reason_unrecoverable: "it cannot work", "não tem como funcionar", "no puede funcionar";
        reason_expired: "it came too late", "ficou tarde demais", "llegó demasiado tarde";
        reason_ambiguous: "nobody knows whether it arrived", "ninguém sabe se chegou", "nadie sabe si llegó";
        failure_dns: "name not found", "nome não encontrado", "nombre no encontrado";
        failure_refused: "connection refused", "conexão recusada", "conexión rechazada";
        failure_unreachable: "unreachable", "inalcançável", "inalcanzable";
        failure_reset: "connection reset", "conexão interrompida", "conexión interrumpida";
        failure_timeout: "timed out", "tempo esgotado", "tiempo agotado";
        failure_tls: "TLS failed", "TLS falhou", "TLS falló";
        failure_blocked: "address not allowed", "endereço não permitido", "dirección no permitida";
        failure_protocol: "not understood as HTTP", "não entendido como HTTP", "no entendido como HTTP";
        failure_proxy: "proxy failed", "proxy falhou", "proxy falló";
        failure_proxy_refused: "proxy refused", "proxy recusou", "proxy rechazó";
        failure_token: "no token to be had", "não se obteve um token", "no se obtuvo un token";
        failure_token_refused: "token refused", "token recusado", "token rechazado";
        failure_interrupted: "the gateway stopped", "o gateway parou", "la pasarela se detuvo";
        failure_transform: "transform failed", "transformação falhou", "transformación falló";
        failure_unsignable: "cannot be signed", "não pode ser assinado", "no se puede firmar";
        failure_unsendable: "cannot be sent", "não pode ser enviado", "no se puede enviar";
        failure_not_started: "program not started", "programa não iniciado", "programa no iniciado";
        failure_exit: "program failed", "programa falhou", "programa falló";
        failure_error_reply: "error reply", "resposta de erro", "respuesta de error";
        why_backoff: "the retry policy waits so long after so many attempts", "a política de novas tentativas espera este tempo após tantas tentativas", "la política de reintentos espera este tiempo tras tantos intentos";
        why_retry_after: "the destination asked for it with Retry-After", "o destino pediu com Retry-After", "el destino lo pidió con Retry-After";
        why_service_wait: "the service wants to be left alone for so long", "o serviço quer ficar em paz por este tempo", "el servicio quiere que se le deje en paz este tiempo";
        why_status_awaited: "until then a status may tell whether it arrived", "até lá um status pode dizer se chegou", "hasta entonces un estado puede decir si llegó";
        why_status_failed: "a status said that it failed", "um status disse que falhou", "un estado dijo que falló";
        why_keeps_order: "others wait in line behind it, so it is not given up", "outras esperam na fila atrás dela, então não se desiste", "otras esperan en fila detrás, así que no se abandona";
        why_paused: "the destination is paused for this answer, and has to be resumed before", "o destino está pausado por esta resposta, e precisa ser retomado antes", "el destino está en pausa por esta respuesta, y hay que reanudarlo antes";
        why_interrupted: "the gateway stopped during the attempt", "o gateway parou durante a tentativa", "la pasarela se detuvo durante el intento";
    }
);

impl FailureTexts {
    /// What a class of failure is called; as the API says it if it is new.
    pub(crate) fn class<'w>(&self, word: &'w str) -> &'w str {
        match word {
            "transient" => self.class_transient,
            "throttled" => self.class_throttled,
            "permanent" => self.class_permanent,
            "config" => self.class_config,
            "ambiguous" => self.class_ambiguous,
            other => other,
        }
    }

    /// What a reason to be dead is called; as the API says it if it is new.
    pub(crate) fn reason<'w>(&self, word: &'w str) -> &'w str {
        match word {
            "max_retries" => self.reason_max_retries,
            "invalid_endpoint" => self.reason_invalid_endpoint,
            "payload_error" => self.reason_payload_error,
            "unrecoverable" => self.reason_unrecoverable,
            "expired" => self.reason_expired,
            "ambiguous" => self.reason_ambiguous,
            other => other,
        }
    }

    /// What went wrong before there was an answer; as the API says it if it is new.
    pub(crate) fn failure<'w>(&self, word: &'w str) -> &'w str {
        match word {
            "dns" => self.failure_dns,
            "refused" => self.failure_refused,
            "unreachable" => self.failure_unreachable,
            "reset" => self.failure_reset,
            "timeout" => self.failure_timeout,
            "tls" => self.failure_tls,
            "blocked" => self.failure_blocked,
            "protocol" => self.failure_protocol,
            "proxy" => self.failure_proxy,
            "proxy_refused" => self.failure_proxy_refused,
            "token" => self.failure_token,
            "token_refused" => self.failure_token_refused,
            "interrupted" => self.failure_interrupted,
            "transform" => self.failure_transform,
            "unsignable" => self.failure_unsignable,
            "unsendable" => self.failure_unsendable,
            "not_started" => self.failure_not_started,
            "exit" => self.failure_exit,
            "error_reply" => self.failure_error_reply,
            other => other,
        }
    }

    /// Why the next attempt is when it is; as the API says it if it is new.
    pub(crate) fn why<'w>(&self, word: &'w str) -> &'w str {
        match word {
            "backoff" => self.why_backoff,
            "retry_after" => self.why_retry_after,
            "service_wait" => self.why_service_wait,
            "status_awaited" => self.why_status_awaited,
            "status_failed" => self.why_status_failed,
            "keeps_order" => self.why_keeps_order,
            "paused" => self.why_paused,
            "interrupted" => self.why_interrupted,
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use surehook_core::delivery::{FailureClass, DeadReason};

    use super::*;
    use crate::lang::Lang;

    #[test]
    fn every_word_of_the_api_has_a_meaning() {
        let words = FailureTexts::of(Lang::Pt);
        for word in FailureClass::ALL.iter().map(|class| class.as_str()) {
            assert_ne!(words.class(word), word);
        }
        for word in DeadReason::ALL.iter().map(|reason| reason.as_str()) {
            assert_ne!(words.reason(word), word);
        }
        assert_eq!((words.failure("new"), words.why("new")), ("new", "new"));
    }
}
