//! Texts of the page of idempotency keys.

crate::lang::translations!(
    IdempotencyTexts {
        lead: "Keys that your programs claimed, with the status of their work", "Chaves reservadas pelos seus programas, com o estado do trabalho", "Claves reservadas por sus programas, con el estado de su trabajo";
        namespaces: "Namespaces", "Namespaces", "Espacios de nombres";
        namespace: "Namespace", "Namespace", "Espacio de nombres";
        key: "Key", "Chave", "Clave";
        in_progress: "In progress", "Em andamento", "En curso";
        abandoned: "Abandoned", "Abandonada", "Abandonada";
        completed: "Completed", "Concluída", "Completada";
        released: "Released", "Liberada", "Liberada";
        result_size: "Result size", "Tamanho do resultado", "Tamaño del resultado";
        lease_until: "Lease until", "Reservada até", "Reservada hasta";
        completed_at: "Completed at", "Concluída em", "Completada el";
        expires: "Expires", "Expira", "Expira";
        empty: "No idempotency keys yet. Programs claim them with POST /api/v1/idempotency/{namespace}/{key}.", "Nenhuma chave de idempotência ainda. Os programas as reservam com POST /api/v1/idempotency/{namespace}/{key}.", "Aún no hay claves de idempotencia. Los programas las reservan con POST /api/v1/idempotency/{namespace}/{key}.";
        release: "Release", "Liberar", "Liberar";
        release_title: "Release this key?", "Liberar esta chave?", "¿Liberar esta clave?";
        release_text: "The next claim starts anew. If the holder still works on it, the work may be done twice.", "A próxima reserva começa do zero. Se quem a reservou ainda estiver trabalhando, o trabalho pode ser feito duas vezes.", "La próxima reserva empieza de cero. Si quien la reservó sigue trabajando, el trabajo puede hacerse dos veces.";
        key_released: "Key released", "Chave liberada", "Clave liberada";
    }
);
