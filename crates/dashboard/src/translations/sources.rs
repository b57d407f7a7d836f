//! Words of the pages about sources.

crate::lang::words!(
    /// What the pages about sources say.
    SourceTexts {
        title: "Sources", "Origens", "Orígenes";
        lead: "Where events come from. Each has an address of its own.", "De onde vêm os eventos. Cada uma tem um endereço próprio.", "De dónde vienen los eventos. Cada uno tiene su propia dirección.";
        new: "New source", "Nova origem", "Nuevo origen";
        choose: "Whose webhooks are these? The choice brings the right signature check, answers and keys.", "De quem são estes webhooks? A escolha traz a verificação de assinatura, as respostas e as chaves certas.", "¿De quién son estos webhooks? La elección trae la verificación de firma, las respuestas y las claves correctas.";
        about_generic: "Any other sender", "Qualquer outro remetente", "Cualquier otro remitente";
        empty: "There is no source yet. Make one and give its address to whoever sends webhooks.", "Ainda não há nenhuma origem. Crie uma e dê o endereço dela a quem envia webhooks.", "Todavía no hay ningún origen. Cree uno y dé su dirección a quien envía webhooks.";
        provider: "Provider", "Provedor", "Proveedor";
        address: "ApiPath", "Endereço", "Dirección";
        address_hint: "Give this address to the sender.", "Dê este endereço ao remetente.", "Dé esta dirección al remitente.";
        address_secret: "The sender puts the secret after it: {}/SECRET", "O remetente coloca o segredo depois dele: {}/SEGREDO", "El remitente pone el secreto después: {}/SECRETO";
        built_in: "built in: what is sent over the API", "integrada: o que é enviado pela API", "integrado: lo que se envía por la API";
        verified: "verified", "verificada", "verificado";
        unverified: "not verified", "não verificada", "sin verificar";
        unverified_text: "Whoever knows the address may send. Set how requests are signed, unless only your own network reaches it.", "Quem souber o endereço pode enviar. Defina como as requisições são assinadas, a menos que só a sua rede o alcance.", "Quien conozca la dirección puede enviar. Defina cómo se firman las solicitudes, salvo que solo su red la alcance.";
        off: "off", "desligada", "apagado";
        off_text: "It answers 503, so that senders come again later.", "Ela responde 503, para que os remetentes voltem mais tarde.", "Responde 503, para que los remitentes vuelvan más tarde.";
        day: "24 hours", "24 horas", "24 horas";
        accepted: "Accepted, 24 hours", "Aceitos, 24 horas", "Aceptados, 24 horas";
        duplicates: "Duplicates, 24 hours", "Duplicados, 24 horas", "Duplicados, 24 horas";
        no_key: "Without a key, 24 hours", "Sem chave, 24 horas", "Sin clave, 24 horas";
        see_events: "Events", "Eventos", "Eventos";
        see_requests: "Requests", "Requisições", "Solicitudes";
        try_it: "See an event arrive", "Ver um evento chegar", "Ver llegar un evento";
        send_signed: "Realistic events, signed as this source wants them:", "Eventos realistas, assinados como esta origem quer:", "Eventos realistas, firmados como este origen los quiere:";
        send_plain: "An event, from anywhere:", "Um evento, de qualquer lugar:", "Un evento, desde cualquier lugar:";
        send_cli: "Realistic events of this provider:", "Eventos realistas deste provedor:", "Eventos realistas de este proveedor:";
        provider_page: "What to click there and what to beware of:", "O que clicar lá e com o que ter cuidado:", "Qué pulsar allí y con qué tener cuidado:";
        greets: "The provider asks at this address whether we are the right ones; the gateway answers with the token below.", "O provedor pergunta neste endereço se somos nós; o gateway responde com o token abaixo.", "El proveedor pregunta en esta dirección si somos nosotros; la pasarela responde con el token de abajo.";
        waiting: "Waiting for the first event…", "Esperando o primeiro evento…", "Esperando el primer evento…";
        newest: "Newest events", "Eventos mais novos", "Eventos más nuevos";
        refused: "Refused lately", "Recusadas recentemente", "Rechazadas últimamente";
        settings: "Settings", "Configurações", "Ajustes";
        verify: "How a request proves itself", "Como uma requisição se prova", "Cómo se prueba una solicitud";
        verify_hint: "Without a check whoever knows the address may send.", "Sem verificação, quem souber o endereço pode enviar.", "Sin verificación, quien conozca la dirección puede enviar.";
        verify_provider: "As the provider does", "Como o provedor faz", "Como lo hace el proveedor";
        verify_hmac: "Signature (HMAC) in a header", "Assinatura (HMAC) em um cabeçalho", "Firma (HMAC) en una cabecera";
        verify_token: "The secret itself in a header", "O próprio segredo em um cabeçalho", "El secreto mismo en una cabecera";
        verify_basic: "User and password", "Usuário e senha", "Usuario y contraseña";
        verify_none: "Not at all: anybody may send", "De forma nenhuma: qualquer um pode enviar", "De ninguna manera: cualquiera puede enviar";
        verify_with: "Header, or user", "Cabeçalho, ou usuário", "Cabecera, o usuario";
        verify_with_hint: "The header with the signature or the secret; for a password the user.", "O cabeçalho com a assinatura ou o segredo; para senha, o usuário.", "La cabecera con la firma o el secreto; para contraseña, el usuario.";
        secrets: "Secret", "Segredo", "Secreto";
        challenge: "Verify token", "Token de verificação", "Token de verificación";
        challenge_hint: "What the provider's question at the address must hold.", "O que a pergunta do provedor no endereço deve conter.", "Lo que debe contener la pregunta del proveedor en la dirección.";
        keys: "Keys", "Chaves", "Claves";
        window: "Keys are remembered for", "Chaves são lembradas por", "Las claves se recuerdan por";
        window_hint: "Such as 8d. Empty: longer than the provider sends again.", "Por exemplo 8d. Vazio: mais tempo do que o provedor reenvia.", "Por ejemplo 8d. Vacío: más tiempo del que el proveedor reenvía.";
        keep_events: "Events are kept for", "Eventos são guardados por", "Los eventos se guardan por";
        keep_events_hint: "Such as 30d. Empty: as the server says.", "Por exemplo 30d. Vazio: como o servidor diz.", "Por ejemplo 30d. Vacío: como diga el servidor.";
        keep_bodies: "Bodies are kept for", "Corpos são guardados por", "Los cuerpos se guardan por";
        keep_bodies_hint: "Empty: as long as the event.", "Vazio: tanto quanto o evento.", "Vacío: tanto como el evento.";
        redact: "Further secret fields", "Outros campos secretos", "Otros campos secretos";
        redact_hint: "One name a line. Their values are hidden wherever a body is shown.", "Um nome por linha. Os valores ficam ocultos onde um corpo é mostrado.", "Un nombre por línea. Sus valores se ocultan donde se muestra un cuerpo.";
        sync: "Waits for", "Espera por", "Espera a";
        enabled: "Takes requests", "Recebe requisições", "Recibe solicitudes";
        delete_text: "Its address answers 404 from then on, and its routes go with it. Events that came are kept as long as retention says.", "O endereço passa a responder 404, e suas rotas vão junto. Eventos recebidos ficam guardados conforme a retenção.", "Su dirección responderá 404 desde entonces, y sus rutas se van con él. Los eventos recibidos se guardan según la retención.";
    }
);
