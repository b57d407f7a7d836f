//! Words for failures: classes, reasons, and what went wrong on the way.

crate::lang::words!(
    /// What failures are called.
    Failures {
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
    }
);

impl Failures {
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
}
