//! Texts of the keyboard help, which every page contains.

crate::lang::translations!(
    ShortcutTexts {
        filter: "Focus the filter", "Ir para o filtro", "Ir al filtro";
        rows: "Next, previous row", "Próxima linha, linha anterior", "Fila siguiente, fila anterior";
        open: "Open row", "Abrir linha", "Abrir fila";
        select: "Select row", "Selecionar linha", "Seleccionar fila";
        curl: "Copy as curl", "Copiar como curl", "Copiar como curl";
        live: "Live events", "Eventos ao vivo", "Eventos en vivo";
        go: "Go to page", "Ir para a página", "Ir a la página";
        help: "Show this help", "Mostrar esta ajuda", "Mostrar esta ayuda";
        escape: "Close or leave a field", "Fechar ou sair de um campo", "Cerrar o salir de un campo";
        off: "You can turn shortcuts off:", "Você pode desativar os atalhos:", "Puede desactivar los atajos:";
        turn_off: "Turn off", "Desativar", "Desactivar";
    }
);
