//! Texts of the settings page.

crate::lang::translations!(
    SettingsTexts {
        lead: "Your preferences, API tokens and gateway information", "Suas preferências, tokens da API e informações do gateway", "Sus preferencias, tokens de la API e información del gateway";
        you: "Preferences", "Preferências", "Preferencias";
        language_hint: "Stored in this browser.", "Salvo neste navegador.", "Se guarda en este navegador.";
        shortcuts_hint: "Press ? on any page to see them.", "Pressione ? em qualquer página para vê-los.", "Presione ? en cualquier página para verlos.";
        zone_hint: "For example America/Sao_Paulo or UTC. Empty: the browser's time zone.", "Por exemplo, America/Sao_Paulo ou UTC. Vazio: o fuso do navegador.", "Por ejemplo, America/Sao_Paulo o UTC. Vacío: la zona del navegador.";
        tokens: "API tokens", "Tokens da API", "Tokens de la API";
        tokens_lead: "For programs and for signing in. A token is shown only once, when you create it.", "Para programas e para entrar no painel. O token é exibido uma única vez, quando você o cria.", "Para programas y para iniciar sesión. El token se muestra una sola vez, cuando lo crea.";
        tokens_hidden: "Only admins can see tokens.", "Somente administradores podem ver os tokens.", "Solo los administradores pueden ver los tokens.";
        sessions: "Active sessions", "Sessões ativas", "Sesiones activas";
        this_session: "This browser", "Este navegador", "Este navegador";
        name: "Name", "Nome", "Nombre";
        role: "Role", "Função", "Rol";
        role_viewer: "viewer: read only", "viewer: somente leitura", "viewer: solo lectura";
        role_operator: "operator: can also replay, pause and send", "operator: também pode reenviar, pausar e enviar", "operator: también puede reenviar, pausar y enviar";
        role_admin: "admin: full access", "admin: acesso total", "admin: acceso total";
        created: "Created", "Criado", "Creado";
        expires: "Expires", "Expira", "Expira";
        never: "Never", "Nunca", "Nunca";
        expired: "Expired", "Expirado", "Expirado";
        new_token: "New token", "Novo token", "Nuevo token";
        expires_in: "Expires after", "Expira após", "Expira después de";
        expires_hint: "For example 30d or 12h. Empty: never.", "Por exemplo, 30d ou 12h. Vazio: nunca.", "Por ejemplo, 30d o 12h. Vacío: nunca.";
        namespaces: "Idempotency namespaces", "Namespaces de idempotência", "Espacios de idempotencia";
        namespaces_hint: "For programs that only use the idempotency service, for example: orders mail. Empty: no limit.", "Para programas que só usam o serviço de idempotência, por exemplo: orders mail. Vazio: sem limite.", "Para programas que solo usan el servicio de idempotencia, por ejemplo: orders mail. Vacío: sin límite.";
        create: "Create token", "Criar token", "Crear token";
        token_created: "Copy your new token now. It will not be shown again.", "Copie seu novo token agora. Ele não será exibido novamente.", "Copie ahora su nuevo token. No se volverá a mostrar.";
        revoke: "Revoke", "Revogar", "Revocar";
        revoke_title: "Revoke this token?", "Revogar este token?", "¿Revocar este token?";
        revoke_text: "Requests with this token will be refused immediately, and browsers that signed in with it will be signed out.", "As requisições com este token passarão a ser recusadas imediatamente, e os navegadores que entraram com ele serão desconectados.", "Las solicitudes con este token se rechazarán de inmediato y se cerrará la sesión de los navegadores que entraron con él.";
        revoked: "Token revoked", "Token revogado", "Token revocado";
        about: "About this gateway", "Sobre este gateway", "Acerca de este gateway";
        version: "Version", "Versão", "Versión";
        retention: "Event retention", "Retenção de eventos", "Retención de eventos";
        retention_hint: "Set with `retention` in surehook.toml. Sources can override it.", "Definida por `retention` no surehook.toml. Cada origem pode ter a sua.", "Se define con `retention` en surehook.toml. Cada origen puede tener la suya.";
        public_url: "Public URL", "URL pública", "URL pública";
        public_url_none: "Not set (`public_url` in surehook.toml)", "Não definida (`public_url` no surehook.toml)", "Sin definir (`public_url` en surehook.toml)";
        body_max: "Maximum body size", "Tamanho máximo do corpo", "Tamaño máximo del cuerpo";
        gateway_time: "Gateway time", "Hora do gateway", "Hora del gateway";
        api_document: "API reference (OpenAPI)", "Referência da API (OpenAPI)", "Referencia de la API (OpenAPI)";
    }
);
