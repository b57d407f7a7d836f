//! Texts for failure classes, dead letter reasons, attempt failures, and schedule reasons.

use crate::lang::TextsByCode as _;

crate::lang::translations!(
    FailureTexts {
        class_transient: "Temporary failure", "Falha temporária", "Fallo temporal";
        class_throttled: "Rate limited", "Limite de requisições excedido", "Límite de solicitudes excedido";
        class_permanent: "Permanent failure", "Falha permanente", "Fallo permanente";
        class_config: "Configuration error", "Erro de configuração", "Error de configuración";
        class_ambiguous: "Unknown result", "Resultado desconhecido", "Resultado desconocido";
        reason_max_retries: "All retries failed", "Todas as tentativas falharam", "Todos los intentos fallaron";
        reason_invalid_endpoint: "Destination address or settings are invalid", "Endereço ou configuração do destino inválidos", "Dirección o configuración del destino no válidas";
        reason_payload_error: "Destination rejected the payload", "O destino rejeitou o conteúdo", "El destino rechazó el contenido";
        reason_unrecoverable: "Rejected, will not be retried", "Rejeitada; não haverá novas tentativas", "Rechazada; no se reintentará";
        reason_expired: "Expired before delivery", "Expirou antes da entrega", "Expiró antes de la entrega";
        reason_ambiguous: "May have been delivered, will not be retried", "Pode ter sido entregue; não haverá novas tentativas", "Es posible que se haya entregado; no se reintentará";
        failure_dns: "DNS lookup failed", "Falha na consulta DNS", "Falló la consulta DNS";
        failure_refused: "Connection refused", "Conexão recusada", "Conexión rechazada";
        failure_unreachable: "Host unreachable", "Host inacessível", "Host inaccesible";
        failure_reset: "Connection reset", "Conexão interrompida", "Conexión interrumpida";
        failure_timeout: "Timed out", "Tempo limite esgotado", "Tiempo de espera agotado";
        failure_tls: "TLS error", "Erro de TLS", "Error de TLS";
        failure_blocked: "Address not allowed", "Endereço não permitido", "Dirección no permitida";
        failure_protocol: "Invalid HTTP response", "Resposta HTTP inválida", "Respuesta HTTP no válida";
        failure_proxy: "Proxy error", "Erro no proxy", "Error del proxy";
        failure_proxy_refused: "Refused by proxy", "Recusada pelo proxy", "Rechazada por el proxy";
        failure_token: "Could not get an OAuth token", "Não foi possível obter um token OAuth", "No se pudo obtener un token OAuth";
        failure_token_refused: "OAuth token rejected", "Token OAuth rejeitado", "Token OAuth rechazado";
        failure_interrupted: "Gateway stopped", "Gateway interrompido", "Gateway interrumpido";
        failure_no_resources: "Gateway out of resources", "Gateway sem recursos", "Gateway sin recursos";
        failure_filter: "Filter failed", "Erro no filtro", "Error en el filtro";
        failure_transform: "Transform failed", "Erro na transformação", "Error en la transformación";
        failure_unsignable: "Could not sign request", "Não foi possível assinar a requisição", "No se pudo firmar la solicitud";
        failure_unsendable: "Message not supported", "Mensagem não suportada", "Mensaje no compatible";
        failure_not_started: "Program not started", "Programa não iniciado", "Programa no iniciado";
        failure_exit: "Program failed", "Erro no programa", "Error en el programa";
        failure_error_reply: "Error reply", "Resposta de erro", "Respuesta de error";
        schedule_reason_backoff: "Retry policy backoff", "Intervalo da política de novas tentativas", "Intervalo de la política de reintentos";
        schedule_reason_retry_after: "Requested by the destination (Retry-After)", "Solicitado pelo destino (Retry-After)", "Solicitado por el destino (Retry-After)";
        schedule_reason_service_wait: "The service asked us to back off", "O serviço pediu para reduzir o ritmo", "El servicio pidió reducir el ritmo";
        schedule_reason_status_awaited: "Waiting for a status update from the provider", "Aguardando uma atualização de status do provedor", "Esperando una actualización de estado del proveedor";
        schedule_reason_status_failed: "The provider reported a failure", "O provedor informou uma falha", "El proveedor informó un fallo";
        schedule_reason_keeps_order: "Other deliveries with the same ordering key are waiting, so retries continue", "Outras entregas com a mesma chave de ordenação estão aguardando; por isso, as tentativas continuam", "Hay otras entregas con la misma clave de orden en espera; por eso, los intentos continúan";
        schedule_reason_paused: "The destination was paused because of this response. Resume it to retry.", "O destino foi pausado por causa desta resposta. Retome-o para tentar novamente.", "El destino se pausó por esta respuesta. Reanúdelo para reintentar.";
        schedule_reason_interrupted: "The gateway stopped during the attempt", "O gateway parou durante a tentativa", "El gateway se detuvo durante el intento";
    }
);

impl FailureTexts {
    /// The text for a failure class.
    pub(crate) fn class<'w>(&self, code: &'w str) -> &'w str {
        self.by_code("class", code)
    }

    /// The text for the reason a delivery became a dead letter.
    pub(crate) fn reason<'w>(&self, code: &'w str) -> &'w str {
        self.by_code("reason", code)
    }

    /// The text for a failure without a response.
    pub(crate) fn failure<'w>(&self, code: &'w str) -> &'w str {
        self.by_code("failure", code)
    }

    /// The text for a `ScheduleReason`.
    pub(crate) fn schedule_reason<'w>(&self, code: &'w str) -> &'w str {
        self.by_code("schedule_reason", code)
    }
}

#[cfg(test)]
mod tests {
    use surehook_retry::{DeadReason, FailureClass};

    use super::*;
    use crate::lang::Lang;

    #[test]
    fn every_class_and_reason_has_a_text_and_unknown_values_are_kept() {
        let texts = FailureTexts::of(Lang::Pt);
        for code in FailureClass::ALL.iter().map(|class| class.as_str()) {
            assert_ne!(texts.class(code), code);
        }
        for code in DeadReason::ALL.iter().map(|reason| reason.as_str()) {
            assert_ne!(texts.reason(code), code);
        }
        assert_eq!((texts.failure("new"), texts.schedule_reason("new")), ("new", "new"));
    }
}
