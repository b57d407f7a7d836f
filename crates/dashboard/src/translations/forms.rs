//! Words of the forms about settings.

crate::lang::words!(
    /// What the forms about sources, destinations and routes say.
    FormTexts {
        edit: "Edit", "Editar", "Editar";
        edit_title: "FormTexts {}", "Editar {}", "Editar {}";
        create: "Create", "Criar", "Crear";
        as_form: "As a form", "Como formulário", "Como formulario";
        as_json: "As JSON", "Como JSON", "Como JSON";
        json_label: "All settings as JSON", "Todas as configurações em JSON", "Todos los ajustes en JSON";
        json_hint: "A secret that reads ••• stays what it is. Write env:NAME to take one from the environment.", "Um segredo que aparece como ••• continua o mesmo. Escreva env:NOME para usar um do ambiente.", "Un secreto que se lee ••• sigue siendo el mismo. Escriba env:NOMBRE para tomar uno del entorno.";
        refused: "This was not saved", "Isto não foi salvo", "Esto no se guardó";
        conflict: "Somebody changed it since this form was opened. What you typed is kept below, and what is there now is said beside it. Save again to put yours in its place.", "Alguém alterou isto desde que o formulário foi aberto. O que você digitou foi mantido abaixo, e o que está lá agora aparece ao lado. Salve de novo para colocar o seu no lugar.", "Alguien cambió esto desde que se abrió el formulario. Lo que escribió se conserva abajo, y lo que hay ahora se indica al lado. Guarde de nuevo para poner lo suyo en su lugar.";
        there_now: "There now:", "Está agora:", "Hay ahora:";
        see_current: "See what is there now", "Ver o que está lá agora", "Ver lo que hay ahora";
        secret_there: "There is one. Leave this empty to keep it:", "Já existe. Deixe vazio para manter:", "Ya hay. Deje esto vacío para conservarlo:";
        secret_hint: "The secret itself, or env:NAME to take it from the environment.", "O próprio segredo, ou env:NOME para usar o do ambiente.", "El secreto mismo, o env:NOMBRE para tomarlo del entorno.";
        secrets_keep: "Keep the earlier ones too, while it is rotated", "Manter também os anteriores, durante a troca", "Conservar también los anteriores, durante el cambio";
        secrets_again: "Secrets are not sent back to the browser: type them again.", "Segredos não voltam ao navegador: digite-os de novo.", "Los secretos no vuelven al navegador: escríbalos de nuevo.";
        saved: "{} was saved.", "{} foi salvo.", "{} se guardó.";
        delete: "Delete", "Excluir", "Eliminar";
        delete_title: "Delete {}?", "Excluir {}?", "¿Eliminar {}?";
        delete_type: "Type {} to confirm", "Digite {} para confirmar", "Escriba {} para confirmar";
        delete_wrong: "The name that was typed is another one. Nothing was deleted.", "O nome digitado é outro. Nada foi excluído.", "El nombre escrito es otro. No se eliminó nada.";
        deleted: "{} was deleted.", "{} foi excluído.", "{} se eliminó.";
        name: "Name", "Nome", "Nombre";
        name_hint: "Small letters, digits, - and _. It stands in addresses.", "Letras minúsculas, dígitos, - e _. Aparece em endereços.", "Letras minúsculas, dígitos, - y _. Aparece en direcciones.";
        not_json: "This is not JSON: {}", "Isto não é JSON: {}", "Esto no es JSON: {}";
    }
);
