//! Words of the help for the keyboard, which every page has.

crate::lang::words!(
    /// What the help for the keyboard says.
    ShortcutTexts {
        title: "Keyboard shortcuts", "Atalhos de teclado", "Atajos de teclado";
        filter: "Type a filter", "Digitar um filtro", "Escribir un filtro";
        rows: "Next row, row before", "Próxima linha, linha anterior", "Fila siguiente, fila anterior";
        open: "Open the row", "Abrir a linha", "Abrir la fila";
        select: "Select the row", "Selecionar a linha", "Seleccionar la fila";
        replay: "Replay", "Reenviar", "Reenviar";
        curl: "Copy as curl", "Copiar como curl", "Copiar como curl";
        live: "Live tail", "Ao vivo", "En vivo";
        go: "Go to a page of the menu", "Ir a uma página do menu", "Ir a una página del menú";
        help: "This help", "Esta ajuda", "Esta ayuda";
        escape: "Close, or leave a field", "Fechar, ou sair de um campo", "Cerrar, o salir de un campo";
        off: "Shortcuts can be switched off:", "Os atalhos podem ser desligados:", "Los atajos se pueden desactivar:";
        turn_off: "Switch them off", "Desligar", "Desactivar";
    }
);
