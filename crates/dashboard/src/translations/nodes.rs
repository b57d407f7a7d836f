//! Texts of the page about nodes.

crate::lang::translations!(
    NodeTexts {
        lead: "Processes that share the store, and the destinations that each delivers to", "Processos que compartilham o armazenamento e os destinos que cada um atende", "Procesos que comparten el almacenamiento y los destinos que atiende cada uno";
        embedded: "This gateway uses its embedded store, so it is the only node. Several nodes need PostgreSQL (`--database`).", "Este gateway usa o armazenamento embutido, portanto é o único nó. Vários nós exigem PostgreSQL (`--database`).", "Este gateway usa el almacenamiento integrado, por lo que es el único nodo. Varios nodos requieren PostgreSQL (`--database`).";
        node: "Node", "Nó", "Nodo";
        this_node: "Answered this request", "Respondeu a esta requisição", "Respondió a esta solicitud";
        address: "Address", "Endereço", "Dirección";
        version: "Version", "Versão", "Versión";
        lanes: "Lanes", "Filas de destino", "Colas de destino";
        lanes_lead: "A lane is the deliveries to one destination. One node at a time owns it, so limits and order hold over all nodes.", "Uma fila de destino reúne as entregas a um destino. Um nó por vez é o dono, de modo que limites e ordem valem entre todos os nós.", "Una cola de destino reúne las entregas a un destino. Un nodo a la vez es el dueño, de modo que los límites y el orden valen entre todos los nodos.";
        lanes_none: "No destinations yet", "Nenhum destino ainda", "Todavía no hay destinos";
        started: "Started", "Início", "Inicio";
        renewed: "Last renewal", "Última renovação", "Última renovación";
        alive: "Alive", "Ativo", "Activo";
        leaving: "Leaving", "Saindo", "Saliendo";
        lost: "Lost", "Perdido", "Perdido";
        owner: "Owner", "Dono", "Dueño";
        owner_none: "None at the moment", "Nenhum no momento", "Ninguno por el momento";
        since: "Since", "Desde", "Desde";
        epoch: "Epoch", "Época", "Época";
        lag: "Oldest due delivery", "Entrega vencida mais antiga", "Entrega vencida más antigua";
        duties: "Duties", "Tarefas de manutenção", "Tareas de mantenimiento";
        duties_lead: "Periodic work that one node does for all", "Trabalho periódico que um nó faz por todos", "Trabajo periódico que un nodo hace por todos";
        duty_prune: "Retention", "Retenção", "Retención";
        duty_roll_up: "Statistics", "Estatísticas", "Estadísticas";
        duty_cancel_deleted: "Deleted destinations", "Destinos excluídos", "Destinos eliminados";
        duty_replay_jobs: "Replays", "Reenvios", "Reenvíos";
        duty_callbacks: "Callbacks", "Callbacks", "Callbacks";
        duty_alerts: "Alerts", "Alertas", "Alertas";
        leader: "Leader", "Líder", "Líder";
        handovers: "Recent hand-overs", "Transferências recentes", "Traspasos recientes";
        handovers_none: "No lane has changed its owner", "Nenhuma fila mudou de dono", "Ninguna cola cambió de dueño";
        handover_at: "Time", "Hora", "Hora";
        from: "From", "De", "De";
        to: "To", "Para", "A";
        planned: "Planned", "Planejada", "Planificado";
        taken_over: "Taken over", "Assumida", "Asumida";
        database: "Database", "Banco de dados", "Base de datos";
        database_version: "Server", "Servidor", "Servidor";
        database_size: "Size", "Tamanho", "Tamaño";
        standby: "Standby", "Réplica", "Réplica";
        standby_synchronous: "Commits wait for a standby ({} connected)", "Os commits esperam por uma réplica (conectadas: {})", "Los commits esperan a una réplica (conectadas: {})";
        standby_asynchronous: "{} connected, commits do not wait for them", "Conectadas: {}; os commits não esperam por elas", "Conectadas: {}; los commits no las esperan";
        standby_none: "None", "Nenhuma", "Ninguna";
        standby_warning: "Losing the server loses the last commits. Set synchronous_standby_names.", "A perda do servidor perde os últimos commits. Defina synchronous_standby_names.", "Si se pierde el servidor, se pierden los últimos commits. Defina synchronous_standby_names.";
        connections: "Connections", "Conexões", "Conexiones";
        connections_warning: "Almost all are in use. Raise max_connections or use a pooler.", "Quase todas em uso. Aumente max_connections ou use um pooler.", "Casi todas en uso. Aumente max_connections o use un pooler.";
        oldest_transaction: "Oldest transaction", "Transação mais antiga", "Transacción más antigua";
        oldest_transaction_warning: "It keeps removed rows from being cleaned up. Find and end it (pg_stat_activity).", "Ela impede a limpeza de linhas removidas. Encontre-a e encerre-a (pg_stat_activity).", "Impide limpiar las filas eliminadas. Encuéntrela y termínela (pg_stat_activity).";
        dead_rows: "Rows to clean up", "Linhas a limpar", "Filas por limpiar";
        dead_rows_warning: "Autovacuum cannot keep up.", "O autovacuum não está dando conta.", "El autovacuum no da abasto.";
        clock_offset: "Clock offset", "Diferença do relógio", "Diferencia del reloj";
        clock_offset_warning: "The clocks of the database and this node differ. Synchronize them (NTP).", "Os relógios do banco de dados e deste nó divergem. Sincronize-os (NTP).", "Los relojes de la base de datos y de este nodo difieren. Sincronícelos (NTP).";
        of: "{} of {}", "{} de {}", "{} de {}";
    }
);
