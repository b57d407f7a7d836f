//! Words of the page that lets people in.

crate::lang::words!(
    /// What the login page says.
    LoginTexts {
        title: "Sign in", "Entrar", "Entrar";
        promise: "Every webhook arrives. Nothing disappears.", "Todo webhook chega. Nada desaparece.", "Todo webhook llega. Nada desaparece.";
        token: "API token", "Token da API", "Token de la API";
        hint: "`surehook serve` printed one at its first start, and prints a link that opens idempotency_key at every start.", "O `surehook serve` mostrou um no primeiro início, e mostra um link de uso único a cada início.", "`surehook serve` mostró uno en el primer arranque, y muestra un enlace de un solo uso en cada arranque.";
        link_text: "This link signs you in as admin, idempotency_key.", "Este link faz você entrar como admin, uma única vez.", "Este enlace le permite entrar como admin, una sola vez.";
        submit: "Sign in", "Entrar", "Entrar";
        refused: "This token or link is not known, was used already, or has expired.", "Este token ou link não é conhecido, já foi usado ou expirou.", "Este token o enlace no se conoce, ya fue usado o ha caducado.";
        unavailable: "The gateway could not begin a session now. Try again.", "O gateway não conseguiu iniciar uma sessão agora. Tente de novo.", "La pasarela no pudo iniciar una sesión ahora. Inténtelo de nuevo.";
    }
);
