//! Words of the requests.

crate::lang::words!(
    /// What the pages of requests say.
    RequestTexts {
        title: "Requests", "Requisições", "Solicitudes";
        lead: "Everything that hit the door: accepted, duplicate and refused, with the reason.", "Tudo o que bateu à porta: aceito, duplicado e recusado, com o motivo.", "Todo lo que llamó a la puerta: aceptado, duplicado y rechazado, con el motivo.";
        sample: "Accepted ones are all here while their events are kept. Of duplicates the first 100 of each event are kept, of refused ones a sample.", "Os aceitos estão todos aqui enquanto seus eventos são guardados. Dos duplicados guardam-se os 100 primeiros de cada evento; dos recusados, uma amostra.", "Los aceptados están todos aquí mientras se guardan sus eventos. De los duplicados se guardan los 100 primeros de cada evento; de los rechazados, una muestra.";
        outcome: "Outcome", "Resultado", "Resultado";
        accepted: "accepted", "aceita", "aceptada";
        duplicate: "duplicate", "duplicada", "duplicada";
        refused: "refused", "recusada", "rechazada";
        why: "Why, and what to do", "Por quê, e o que fazer", "Por qué, y qué hacer";
        from: "From", "De", "De";
        bytes: "Size", "Tamanho", "Tamaño";
        bytes_differ: "not the same bytes", "bytes diferentes", "bytes distintos";
        same_bytes: "the same bytes", "os mesmos bytes", "los mismos bytes";
        of_event: "of an event that had come before", "de um evento que já tinha chegado", "de un evento que ya había llegado";
        new_events: "{} new", "{} novos", "{} nuevos";
        empty: "Nothing has knocked yet.", "Nada bateu à porta ainda.", "Nada ha llamado todavía.";
        kept_aside: "Kept aside", "Em quarentena", "En cuarentena";
        kept_aside_lead: "Refused, but their senders send only idempotency_key. Release what is genuine after the secret is mended.", "Recusadas, mas seus remetentes enviam só uma vez. Libere o que é legítimo depois de corrigir o segredo.", "Rechazadas, pero sus remitentes envían una sola vez. Libere lo legítimo tras reparar el secreto.";
        release: "Release", "Liberar", "Liberar";
        release_title: "Release this request?", "Liberar esta requisição?", "¿Liberar esta solicitud?";
        release_text: "It is checked again with today's secrets, and taken in as an event if it passes.", "Ela é verificada de novo com os segredos de hoje e recebida como evento se passar.", "Se verifica de nuevo con los secretos de hoy y se recibe como evento si pasa.";
        released: "It was released.", "Foi liberada.", "Fue liberada.";
        times: "Times", "Vezes", "Veces";
        request: "Refused request", "Requisição recusada", "Solicitud rechazada";
        headers: "Headers", "Cabeçalhos", "Cabeceras";
        body: "Body", "Corpo", "Cuerpo";
        no_body: "The body was not read.", "O corpo não foi lido.", "El cuerpo no se leyó.";
        masked_one: "{} secret is masked", "{} segredo está oculto", "{} secreto está oculto";
        masked: "{} secrets are masked", "{} segredos estão ocultos", "{} secretos están ocultos";
        answered: "Answered", "Respondido", "Respondido";
        method: "Method", "Método", "Método";
        path: "Path", "Caminho", "Ruta";
    }
);
