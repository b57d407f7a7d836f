//! Words of the overview.

crate::lang::words!(
    /// What the overview says.
    Overview {
        title: "Overview", "Visão geral", "Resumen";
        dead: "Dead letters", "Mensagens mortas", "Mensajes muertos";
        oldest: "Oldest pending", "Pendente mais antiga", "Pendiente más antiguo";
        nothing_waits: "nothing waits", "nada espera", "nada espera";
    }
);
