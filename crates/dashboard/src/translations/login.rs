//! Texts of the sign-in page.

crate::lang::translations!(
    LoginTexts {
        title: "Sign in", "Entrar", "Iniciar sesión";
        promise: "Every webhook arrives. Nothing disappears.", "Todo webhook chega. Nada desaparece.", "Todo webhook llega. Nada desaparece.";
        token: "API token", "Token da API", "Token de la API";
        hint: "`surehook serve` prints a token and a single-use sign-in link on its first start. `surehook token link` creates a new link.", "O `surehook serve` mostra um token e um link de acesso de uso único na primeira inicialização. O `surehook token link` cria um novo link.", "`surehook serve` muestra un token y un enlace de acceso de un solo uso en el primer arranque. `surehook token link` crea un enlace nuevo.";
        link_text: "This link signs you in as admin. It works only once.", "Este link permite entrar como administrador. Ele só funciona uma vez.", "Este enlace permite entrar como administrador. Solo funciona una vez.";
        refused: "This token or link is invalid, has expired or was already used.", "Este token ou link é inválido, expirou ou já foi usado.", "Este token o enlace no es válido, expiró o ya se usó.";
        throttled: "Too many failed sign-ins from this address. Wait a minute and try again.", "Muitas tentativas de acesso sem sucesso a partir deste endereço. Aguarde um minuto e tente novamente.", "Demasiados intentos de acceso fallidos desde esta dirección. Espere un minuto e inténtelo de nuevo.";
        unavailable: "The gateway could not create a session. Try again.", "O gateway não conseguiu criar uma sessão. Tente novamente.", "El gateway no pudo crear una sesión. Inténtelo de nuevo.";
    }
);
