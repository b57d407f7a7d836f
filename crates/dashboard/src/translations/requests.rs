//! Texts of the request pages.

crate::lang::translations!(
    RequestTexts {
        lead: "All incoming requests: accepted, duplicate and refused, with the reason", "Todas as requisições recebidas: aceitas, duplicadas e recusadas, com o motivo", "Todas las solicitudes entrantes: aceptadas, duplicadas y rechazadas, con el motivo";
        sample: "Accepted requests are listed as long as their events are stored. The first 100 duplicates of each event are kept, and a sample of the refused requests.", "As requisições aceitas são listadas enquanto seus eventos estão armazenados. São guardadas as 100 primeiras duplicatas de cada evento e uma amostra das requisições recusadas.", "Las solicitudes aceptadas se listan mientras sus eventos estén almacenados. Se guardan los primeros 100 duplicados de cada evento y una muestra de las solicitudes rechazadas.";
        outcome: "Result", "Resultado", "Resultado";
        accepted: "Accepted", "Aceita", "Aceptada";
        duplicate: "Duplicate", "Duplicada", "Duplicada";
        refused: "Refused", "Recusada", "Rechazada";
        reason_and_fix: "Reason and fix", "Motivo e solução", "Motivo y solución";
        from: "Request", "Requisição", "Solicitud";
        bytes_differ: "different body", "corpo diferente", "cuerpo diferente";
        same_bytes: "identical body", "corpo idêntico", "cuerpo idéntico";
        of_event: "Event already received", "Evento já recebido", "Evento ya recibido";
        new_events: "{} new events", "{} eventos novos", "{} eventos nuevos";
        empty: "No requests yet", "Nenhuma requisição ainda", "Todavía no hay solicitudes";
        quarantine: "Quarantine", "Quarentena", "Cuarentena";
        quarantine_lead: "Refused requests from senders that do not retry. Release genuine requests after you fix the secret.", "Requisições recusadas de remetentes que não reenviam. Libere as legítimas depois de corrigir o segredo.", "Solicitudes rechazadas de remitentes que no reintentan. Libere las legítimas después de corregir el secreto.";
        release: "Release", "Liberar", "Liberar";
        release_title: "Release this request?", "Liberar esta requisição?", "¿Liberar esta solicitud?";
        release_text: "It is verified again with the current secrets and accepted as an event if verification succeeds.", "Ela será verificada novamente com os segredos atuais e aceita como evento se a verificação for bem-sucedida.", "Se verificará de nuevo con los secretos actuales y se aceptará como evento si la verificación es correcta.";
        released: "Request released", "Requisição liberada", "Solicitud liberada";
        times: "Times received", "Vezes recebida", "Veces recibida";
        request: "Refused request", "Requisição recusada", "Solicitud rechazada";
        no_body: "The body was not stored.", "O corpo não foi armazenado.", "El cuerpo no se almacenó.";
        masked_one: "{} secret is masked", "{} segredo está oculto", "{} secreto está oculto";
        masked: "{} secrets are masked", "{} segredos estão ocultos", "{} secretos están ocultos";
        response: "HTTP response", "Resposta HTTP", "Respuesta HTTP";
        method: "Method", "Método", "Método";
    }
);
