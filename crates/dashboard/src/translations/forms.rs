//! Texts of the forms for sources, destinations and routes.

crate::lang::translations!(
    FormTexts {
        edit: "Edit", "Editar", "Editar";
        edit_title: "Edit {}", "Editar {}", "Editar {}";
        create: "Create", "Criar", "Crear";
        as_form: "Form", "Formulário", "Formulario";
        as_json: "JSON", "JSON", "JSON";
        json_label: "Settings as JSON", "Configurações em JSON", "Configuración en JSON";
        json_hint: "Secrets shown as ••• stay unchanged. Use env:NAME to read a secret from an environment variable.", "Os segredos exibidos como ••• não são alterados. Use env:NOME para ler um segredo de uma variável de ambiente.", "Los secretos que se muestran como ••• no se modifican. Use env:NOMBRE para leer un secreto de una variable de entorno.";
        not_saved: "Not saved", "Não salvo", "No guardado";
        conflict: "Another user changed this after you opened the form. Your input is kept below, next to the current values. Save again to overwrite them.", "Outro usuário alterou estes dados depois que você abriu o formulário. O que você digitou foi mantido abaixo, ao lado dos valores atuais. Salve novamente para substituí-los.", "Otro usuario modificó estos datos después de que usted abrió el formulario. Lo que escribió se conserva abajo, junto a los valores actuales. Guarde de nuevo para reemplazarlos.";
        current_value: "Current value:", "Valor atual:", "Valor actual:";
        view_current: "View current settings", "Ver configurações atuais", "Ver la configuración actual";
        secret_set: "A secret is set. Leave empty to keep it:", "Já existe um segredo. Deixe em branco para mantê-lo:", "Ya existe un secreto. Déjelo en blanco para conservarlo:";
        secret_hint: "The secret, or env:NAME to read it from an environment variable.", "O segredo, ou env:NOME para lê-lo de uma variável de ambiente.", "El secreto, o env:NOMBRE para leerlo de una variable de entorno.";
        secrets_keep: "Keep previous secrets during rotation", "Manter os segredos anteriores durante a rotação", "Conservar los secretos anteriores durante la rotación";
        secrets_again: "For security, secrets are not sent back to the browser. Type them again.", "Por segurança, os segredos não são devolvidos ao navegador. Digite-os novamente.", "Por seguridad, los secretos no se devuelven al navegador. Escríbalos de nuevo.";
        saved: "{} saved", "{} salvo", "{} guardado";
        delete: "Delete", "Excluir", "Eliminar";
        delete_title: "Delete {}?", "Excluir {}?", "¿Eliminar {}?";
        delete_type: "Type {} to confirm", "Digite {} para confirmar", "Escriba {} para confirmar";
        delete_wrong: "The name you typed does not match. Nothing was deleted.", "O nome digitado não corresponde. Nada foi excluído.", "El nombre escrito no coincide. No se eliminó nada.";
        deleted: "{} deleted", "{} excluído", "{} eliminado";
        name: "Name", "Nome", "Nombre";
        name_hint: "Lowercase letters, digits, - and _. The name is part of URLs.", "Letras minúsculas, números, - e _. O nome faz parte das URLs.", "Letras minúsculas, números, - y _. El nombre forma parte de las URL.";
        invalid_json: "Invalid JSON: {}", "JSON inválido: {}", "JSON no válido: {}";
    }
);
