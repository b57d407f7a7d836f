//! Words of the dead letters.

crate::lang::words!(
    /// What the pages of dead letters say.
    DeadLetterTexts {
        title: "Dead letters", "Mensagens mortas", "Mensajes muertos";
        lead: "What could not be delivered, grouped by cause. Mend the cause, then replay the group.", "O que não pôde ser entregue, agrupado por causa. Corrija a causa e reenvie o grupo.", "Lo que no se pudo entregar, agrupado por causa. Repare la causa y reenvíe el grupo.";
        all: "All dead letters", "Todas as mensagens mortas", "Todos los mensajes muertos";
        all_lead: "One by one, newest first.", "Uma a uma, da mais nova à mais antiga.", "Uno a uno, del más nuevo al más antiguo.";
        groups: "By cause", "Por causa", "Por causa";
        one_by_one: "One by one", "Uma a uma", "Uno a uno";
        none: "Nothing is dead.", "Nada está morto.", "Nada está muerto.";
        none_text: "What cannot be delivered in spite of all attempts would be here, with the reason and a button to replay it.", "O que não puder ser entregue apesar de todas as tentativas aparece aqui, com o motivo e um botão para reenviar.", "Lo que no se pueda entregar a pesar de todos los intentos aparece aquí, con el motivo y un botón para reenviarlo.";
        one: "{} letter", "{} mensagem", "{} mensaje";
        many: "{} letters", "{} mensagens", "{} mensajes";
        since: "first seen", "desde", "desde";
        last: "last seen", "última vez", "última vez";
        replay_group: "Replay the group", "Reenviar o grupo", "Reenviar el grupo";
        see: "See them", "Ver", "Ver";
        newest: "The newest one", "A mais nova", "El más nuevo";
        replay_selected: "Replay selected", "Reenviar selecionadas", "Reenviar seleccionados";
        replay_filter: "Replay all of these", "Reenviar todas estas", "Reenviar todos estos";
        select: "Select {}", "Selecionar {}", "Seleccionar {}";
        event: "Event", "Evento", "Evento";
        died: "Died", "Morreu", "Murió";
    }
);
