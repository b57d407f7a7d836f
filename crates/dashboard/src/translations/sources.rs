//! Texts of the source pages.

crate::lang::translations!(
    SourceTexts {
        lead: "Where events come from. Each source has its own URL.", "De onde vêm os eventos. Cada origem tem sua própria URL.", "De dónde vienen los eventos. Cada origen tiene su propia URL.";
        new: "New source", "Nova origem", "Nuevo origen";
        choose: "Choose the provider. It determines signature verification, responses and dedup keys.", "Escolha o provedor. Ele define a verificação de assinatura, as respostas e as chaves de deduplicação.", "Elija el proveedor. Define la verificación de firma, las respuestas y las claves de deduplicación.";
        about_generic: "Any other sender", "Qualquer outro remetente", "Cualquier otro remitente";
        empty: "No sources yet. Create one and enter its URL at your webhook provider.", "Nenhuma origem ainda. Crie uma e cadastre a URL dela no seu provedor de webhooks.", "Todavía no hay orígenes. Cree uno y registre su URL en su proveedor de webhooks.";
        provider: "Provider", "Provedor", "Proveedor";
        address: "Webhook URL", "URL do webhook", "URL del webhook";
        address_hint: "Enter this URL in the webhook settings of your provider.", "Cadastre esta URL nas configurações de webhook do seu provedor.", "Registre esta URL en la configuración de webhooks de su proveedor.";
        address_secret: "Append the secret to the URL: {}/SECRET", "Acrescente o segredo à URL: {}/SEGREDO", "Agregue el secreto a la URL: {}/SECRETO";
        built_in: "Built in: messages sent through the API", "Integrada: mensagens enviadas pela API", "Integrado: mensajes enviados por la API";
        verified: "Verified", "Verificada", "Verificado";
        unverified: "Not verified", "Não verificada", "Sin verificar";
        unverified_text: "Anyone who knows the URL can send events. Set up signature verification, unless the URL is reachable only from your own network.", "Qualquer pessoa que conheça a URL pode enviar eventos. Configure a verificação de assinatura, a menos que a URL só seja acessível pela sua própria rede.", "Cualquier persona que conozca la URL puede enviar eventos. Configure la verificación de firma, salvo que la URL solo sea accesible desde su propia red.";
        disabled: "Disabled", "Desativada", "Desactivado";
        disabled_text: "This source responds with HTTP 503, so that senders retry later.", "Esta origem responde com HTTP 503, para que os remetentes tentem de novo mais tarde.", "Este origen responde con HTTP 503, para que los remitentes reintenten más tarde.";
        day: "Events, 24 h", "Eventos, 24 h", "Eventos, 24 h";
        accepted: "Accepted, 24 h", "Aceitos, 24 h", "Aceptados, 24 h";
        duplicates: "Duplicates, 24 h", "Duplicatas, 24 h", "Duplicados, 24 h";
        key_conflicts: "Key conflicts, 24 h", "Conflitos de chave, 24 h", "Conflictos de clave, 24 h";
        no_key: "Without dedup key, 24 h", "Sem chave de deduplicação, 24 h", "Sin clave de deduplicación, 24 h";
        try_it: "Send test event", "Enviar evento de teste", "Enviar evento de prueba";
        send_signed: "Sample events with a valid signature:", "Eventos de exemplo com assinatura válida:", "Eventos de ejemplo con firma válida:";
        send_plain: "A single event with curl:", "Um evento com curl:", "Un evento con curl:";
        send_cli: "Sample events of this provider:", "Eventos de exemplo deste provedor:", "Eventos de ejemplo de este proveedor:";
        setup_guide: "Setup guide:", "Guia de configuração:", "Guía de configuración:";
        handshake: "Verification handshake: the provider sends a challenge to this URL, and the gateway answers it with the verify token.", "Handshake de verificação: o provedor envia um desafio para esta URL e o gateway responde com o token de verificação.", "Handshake de verificación: el proveedor envía un desafío a esta URL y el gateway responde con el token de verificación.";
        waiting: "Waiting for the first event…", "Aguardando o primeiro evento…", "Esperando el primer evento…";
        newest: "Latest events", "Eventos mais recentes", "Eventos más recientes";
        refused: "Recently refused", "Recusadas recentemente", "Rechazadas recientemente";
        verify: "Signature verification", "Verificação de assinatura", "Verificación de firma";
        verify_hint: "Without verification, anyone who knows the URL can send events.", "Sem verificação, qualquer pessoa que conheça a URL pode enviar eventos.", "Sin verificación, cualquier persona que conozca la URL puede enviar eventos.";
        verify_provider: "Provider default", "Padrão do provedor", "Predeterminada del proveedor";
        verify_hmac: "HMAC signature in a header", "Assinatura HMAC em um cabeçalho", "Firma HMAC en un encabezado";
        verify_token: "Shared secret in a header", "Segredo compartilhado em um cabeçalho", "Secreto compartido en un encabezado";
        verify_basic: "User and password", "Usuário e senha", "Usuario y contraseña";
        verify_none: "None (anyone can send)", "Nenhuma (qualquer um pode enviar)", "Ninguna (cualquier persona puede enviar)";
        verify_with: "Header or user", "Cabeçalho ou usuário", "Encabezado o usuario";
        verify_with_hint: "Header that carries the signature or the secret; for a password, the user name.", "Cabeçalho que contém a assinatura ou o segredo; para senha, o nome de usuário.", "Encabezado que contiene la firma o el secreto; para contraseña, el nombre de usuario.";
        secrets: "Secret", "Segredo", "Secreto";
        challenge: "Verify token", "Token de verificação", "Token de verificación";
        challenge_hint: "The provider's challenge must contain this token.", "O desafio do provedor deve conter este token.", "El desafío del proveedor debe contener este token.";
        keys: "Dedup keys", "Chaves de deduplicação", "Claves de deduplicación";
        window: "Dedup window", "Janela de deduplicação", "Ventana de deduplicación";
        window_hint: "For example 8d. Empty: longer than the retry period of the provider.", "Por exemplo, 8d. Vazio: mais longa que o período de reenvio do provedor.", "Por ejemplo, 8d. Vacío: más larga que el período de reintentos del proveedor.";
        keep_events: "Event retention", "Retenção de eventos", "Retención de eventos";
        keep_events_hint: "For example 30d. Empty: the default of the gateway.", "Por exemplo, 30d. Vazio: o padrão do gateway.", "Por ejemplo, 30d. Vacío: el valor predeterminado del gateway.";
        keep_bodies: "Body retention", "Retenção do corpo", "Retención del cuerpo";
        keep_bodies_hint: "Empty: same as the events.", "Vazio: a mesma dos eventos.", "Vacío: la misma que la de los eventos.";
        redact: "Secret fields", "Campos secretos", "Campos secretos";
        redact_hint: "One name per line. The values are masked wherever the body is shown.", "Um nome por linha. Os valores ficam ocultos sempre que o corpo é exibido.", "Un nombre por línea. Los valores se ocultan siempre que se muestra el cuerpo.";
        sync: "Synchronous response", "Resposta síncrona", "Respuesta síncrona";
        enabled: "Enabled", "Ativada", "Activado";
        delete_text: "The URL will respond with HTTP 404, and the routes of this source are deleted. Received events stay until the retention policy removes them.", "A URL passará a responder com HTTP 404 e as rotas desta origem serão excluídas. Os eventos recebidos ficam até que a política de retenção os remova.", "La URL responderá con HTTP 404 y se eliminarán las rutas de este origen. Los eventos recibidos permanecen hasta que la política de retención los elimine.";
    }
);
