//! Texts of the sign-in page.

crate::lang::translations!(
    LoginTexts {
        title: "Sign in", "Entrar", "Iniciar sesión";
        promise: "Every webhook arrives. Nothing disappears.", "Todo webhook chega. Nada desaparece.", "Todo webhook llega. Nada desaparece.";
        token: "API token", "Token da API", "Token de la API";
        hint: "`surehook serve` prints a token on its first start and a single-use sign-in link on every start.", "O `surehook serve` mostra um token na primeira inicialização e um link de acesso de uso único a cada inicialização.", "`surehook serve` muestra un token en el primer arranque y un enlace de acceso de un solo uso en cada arranque.";
        link_text: "This link signs you in as admin. It works only once.", "Este link permite entrar como administrador. Ele só funciona uma vez.", "Este enlace permite entrar como administrador. Solo funciona una vez.";
        refused: "This token or link is invalid, has expired or was already used.", "Este token ou link é inválido, expirou ou já foi usado.", "Este token o enlace no es válido, expiró o ya se usó.";
        unavailable: "The gateway could not create a session. Try again.", "O gateway não conseguiu criar uma sessão. Tente novamente.", "El gateway no pudo crear una sesión. Inténtelo de nuevo.";
    }
);
