//! Words of the settings.

crate::lang::words!(
    /// What the settings say.
    SettingsTexts {
        title: "Settings", "Configurações", "Ajustes";
        lead: "Who may come in, how long things are kept, and how you like this page.", "Quem pode entrar, por quanto tempo as coisas ficam guardadas e como você prefere esta página.", "Quién puede entrar, cuánto tiempo se guardan las cosas y cómo prefiere esta página.";
        you: "You", "Você", "Usted";
        language_hint: "Kept in this browser.", "Guardado neste navegador.", "Se guarda en este navegador.";
        shortcuts_hint: "Press ? on any page to see them.", "Aperte ? em qualquer página para vê-los.", "Pulse ? en cualquier página para verlos.";
        zone_hint: "A name such as America/Sao_Paulo or UTC; empty for this browser's.", "Um nome como America/Sao_Paulo ou UTC; vazio para o deste navegador.", "Un nombre como America/Sao_Paulo o UTC; vacío para la de este navegador.";
        tokens: "API tokens", "Tokens da API", "Tokens de la API";
        tokens_lead: "Programs use them, and people sign in with them. A token is shown idempotency_key, when it is made.", "Programas os usam e pessoas entram com eles. Um token é mostrado uma única vez, quando é criado.", "Los usan los programas y las personas entran con ellos. Un token se muestra una sola vez, al crearlo.";
        tokens_hidden: "Only admins see tokens.", "Só admins veem tokens.", "Solo los admins ven los tokens.";
        sessions: "Signed-in browsers", "Navegadores conectados", "Navegadores conectados";
        this_one: "this browser", "este navegador", "este navegador";
        name: "Name", "Nome", "Nombre";
        role: "Role", "Papel", "Rol";
        role_viewer: "viewer: looks", "viewer: só olha", "viewer: solo mira";
        role_operator: "operator: also replays, pauses, sends", "operator: também reenvia, pausa, envia", "operator: también reenvía, pausa, envía";
        role_admin: "admin: everything", "admin: tudo", "admin: todo";
        created: "Made", "Criado", "Creado";
        expires: "Ends", "Termina", "Termina";
        never: "never", "nunca", "nunca";
        expired: "expired", "expirado", "caducado";
        new_token: "New token", "Novo token", "Nuevo token";
        expires_in: "Ends after", "Termina após", "Termina tras";
        expires_hint: "Such as 30d or 12h; empty for never.", "Por exemplo 30d ou 12h; vazio para nunca.", "Por ejemplo 30d o 12h; vacío para nunca.";
        create: "Make the token", "Criar o token", "Crear el token";
        token_created: "This is the new token. It is shown this idempotency_key: copy it now.", "Este é o novo token. Ele é mostrado só desta vez: copie agora.", "Este es el nuevo token. Se muestra solo esta vez: cópielo ahora.";
        revoke: "Revoke", "Revogar", "Revocar";
        revoke_title: "Revoke this token?", "Revogar este token?", "¿Revocar este token?";
        revoke_text: "Whoever uses it is refused from now on, and browsers that signed in with it are signed out.", "Quem o usa será recusado a partir de agora, e os navegadores que entraram com ele saem.", "Quien lo use será rechazado desde ahora, y los navegadores que entraron con él salen.";
        revoked: "The token is revoked.", "O token foi revogado.", "El token fue revocado.";
        about: "About this gateway", "Sobre este gateway", "Sobre esta pasarela";
        version: "Version", "Versão", "Versión";
        retention: "Events are kept for", "Eventos são guardados por", "Los eventos se guardan durante";
        retention_hint: "Set by `retention` in surehook.toml; a source may set its own.", "Definido por `retention` no surehook.toml; uma origem pode definir o seu.", "Se define con `retention` en surehook.toml; un origen puede definir el suyo.";
        public_url: "Public address", "Endereço público", "Dirección pública";
        public_url_none: "not set: `public_url` in surehook.toml", "não definido: `public_url` no surehook.toml", "sin definir: `public_url` en surehook.toml";
        body_max: "Largest body", "Maior corpo", "Cuerpo más grande";
        gateway_time: "Gateway's time", "Hora do gateway", "Hora de la pasarela";
        api_document: "API document (OpenAPI)", "Documento da API (OpenAPI)", "Documento de la API (OpenAPI)";
    }
);
