//! Texts of the health of destinations, on every page that shows it.

use crate::lang::TextsByCode as _;

crate::lang::translations!(
    HealthTexts {
        status_misconfigured: "Invalid settings", "Configuração inválida", "Configuración no válida";
        status_paused: "Paused", "Pausado", "En pausa";
        status_circuit_open: "Circuit open", "Circuito aberto", "Circuito abierto";
        status_failing: "Failing", "Com falhas", "Con fallos";
        status_degraded: "Degraded", "Degradado", "Degradado";
        status_no_traffic: "No traffic", "Sem tráfego", "Sin tráfico";
        status_healthy: "Healthy", "Saudável", "En buen estado";
        health: "Health", "Saúde", "Estado de salud";
        all_destinations: "View all destinations", "Ver todos os destinos", "Ver todos los destinos";
        since: "since", "desde", "desde";
        attempts: "{} of {} attempts failed in the last {}", "{} de {} tentativas falharam nos últimos {}", "{} de {} intentos fallaron en los últimos {}";
        no_attempts: "No attempts in the last {}", "Nenhuma tentativa nos últimos {}", "Ningún intento en los últimos {}";
        dead: "{} new dead letters", "{} novas entregas com falha definitiva", "{} nuevas entregas fallidas";
        dead_one: "{} new dead letter", "{} nova entrega com falha definitiva", "{} nueva entrega fallida";
        last_error: "Last error", "Último erro", "Último error";
        backlog: "Backlog", "Entregas acumuladas", "Entregas acumuladas";
        at_least: "at least {}", "pelo menos {}", "al menos {}";
        due_now: "{} due now", "{} já na hora de envio", "{} listas para enviar";
        drains_in: "sent in about {}", "enviadas em cerca de {}", "se envían en unos {}";
        not_draining: "not being sent", "sem envio no momento", "sin envíos por ahora";
        no_backlog: "None", "Nenhuma", "Ninguna";
    }
);

impl HealthTexts {
    /// The text of a `HealthStatus`.
    pub(crate) fn status<'w>(&self, code: &'w str) -> &'w str {
        self.by_code("status", code)
    }
}

#[cfg(test)]
mod tests {
    use surehook_core::health::HealthStatus;

    use super::*;
    use crate::lang::Lang;

    #[test]
    fn every_status_has_a_text_in_every_language() {
        for status in HealthStatus::ALL {
            for lang in Lang::ALL {
                let text = HealthTexts::of(lang).status(status.as_str());
                assert_ne!(text, status.as_str(), "{lang:?}");
            }
        }
    }
}
