//! Create, edit and delete forms shared by sources and destinations.

use std::{marker::PhantomData, sync::Arc};

use askama::Template;
use axum::{
    Form, Router,
    extract::{Path, Query},
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};
use surehook_api::{ApiTransport as _, calls, percent_encode};

use super::{EditableResource, ResourceChoice};
use crate::{
    Dashboard,
    client::ApiError,
    current_user::CurrentUser,
    form_fields::{self, Control, FormField, FormValues},
    lang::fill,
    page::{PageFrame, PageResult, render_page},
    translations::FormTexts,
};

pub(super) fn routes<T: EditableResource>() -> Router<Arc<Dashboard>> {
    let path = |rest: &str| format!("/{}{rest}", T::PATH);
    Router::new()
        .route(&path("/new"), get(show_new::<T>).post(create::<T>))
        .route(&path("/{name}/edit"), get(show_edit::<T>).post(replace::<T>))
        .route(&path("/{name}/delete"), post(delete::<T>))
}

#[derive(Template)]
#[template(path = "choose.html")]
struct ChoosePage {
    frame: PageFrame,
    lead: &'static str,
    choices: Vec<ResourceChoice>,
}

#[derive(Template)]
#[template(path = "edit.html")]
struct EditPage {
    frame: PageFrame,
    e: &'static FormTexts,
    /// URL, label, and whether it is the open tab.
    tabs: Vec<(String, &'static str, bool)>,
    fields: Vec<FormField>,
    /// Set when the settings are edited as JSON.
    json: Option<String>,
    action: String,
    back: String,
    /// `ETag` of the version being edited; empty for a new resource.
    tag: String,
    idempotency_key: String,
    error: Option<ApiError>,
    /// The resource was changed meanwhile.
    conflict: bool,
    /// The submitted secrets are not sent back, so the user must type them again.
    must_retype_secrets: bool,
}

#[derive(Deserialize)]
struct EditorQuery {
    /// The chosen provider or destination kind.
    choice: Option<String>,
    /// `json` to edit the settings as JSON.
    #[serde(rename = "as")]
    form: Option<String>,
}

struct ResourceForm<'v, T> {
    user: &'v CurrentUser,
    /// `None` for a new resource.
    name: Option<String>,
    spec: Value,
    tag: String,
    as_json: bool,
    resource: PhantomData<T>,
}

impl<'v, T: EditableResource> ResourceForm<'v, T> {
    fn new(user: &'v CurrentUser, name: Option<String>, spec: Value, tag: String) -> Self {
        Self { user, name, spec, tag, as_json: false, resource: PhantomData }
    }

    fn with_json(self, as_json: bool) -> Self {
        Self { as_json, ..self }
    }

    fn fields(&self) -> Vec<FormField> {
        let mut fields = T::fields(&self.spec, self.user.lang());
        form_fields::fill_from_spec(&mut fields, &self.spec);
        T::fill_special_fields(&mut fields, &self.spec);
        fields
    }

    fn page(&self) -> EditPage {
        let e = FormTexts::of(self.user.lang());
        let choice = self.spec[T::CHOICE_FIELD].as_str().unwrap_or(T::DEFAULT_CHOICE);
        let (title, base, back) = match &self.name {
            Some(name) => {
                let path = format!("/{}/{}", T::PATH, percent_encode(name));
                (fill(e.edit_title, &[name]), format!("{path}/edit?"), path)
            }
            None => {
                let base = format!("/{}/new?choice={}&", T::PATH, percent_encode(choice));
                (T::new_page_texts(self.user.lang()).0.to_owned(), base, format!("/{}", T::PATH))
            }
        };
        let tab = |query: &str, name, is_current| {
            (format!("{base}{query}").trim_end_matches(['?', '&']).to_owned(), name, is_current)
        };
        let tabs = vec![tab("", e.as_form, !self.as_json), tab("as=json", e.as_json, self.as_json)];
        let json = serde_json::to_string_pretty(&self.spec).unwrap_or_default();
        EditPage {
            frame: PageFrame::new(self.user, T::NAV, title),
            e,
            action: tabs[usize::from(self.as_json)].0.clone(),
            tabs,
            fields: self.fields(),
            json: self.as_json.then_some(json),
            back,
            tag: self.tag.clone(),
            idempotency_key: self.user.new_idempotency_key(),
            error: None,
            conflict: false,
            must_retype_secrets: false,
        }
    }

    /// The page after an error, with the submitted values.
    fn page_with_error(&self, values: &FormValues, error: &ApiError) -> EditPage {
        let mut page = self.page();
        let is_conflict = error.status == 412;
        form_fields::fill_from_submission(
            &mut page.fields,
            values,
            is_conflict.then_some(&self.spec),
        );
        let is_submitted = |field: &FormField| {
            field.is_secret() && values.get(&field.name).is_some_and(|text| !text.is_empty())
        };
        let sent = values.get("idempotency_key").map(String::as_str).unwrap_or_default();
        EditPage {
            must_retype_secrets: page.fields.iter().any(is_submitted),
            json: page.json.map(|json| values.get("json").cloned().unwrap_or(json)),
            error: Some(error.clone()),
            conflict: is_conflict,
            idempotency_key: self.user.idempotency_key_for_retry(sent, error),
            ..page
        }
    }

    /// The spec to save.
    fn submitted_spec(&self, values: &FormValues) -> Result<Value, ApiError> {
        if let Some(text) = values.get("json").filter(|_| self.as_json) {
            let e = FormTexts::of(self.user.lang());
            let parsed = serde_json::from_str(text);
            return parsed.map_err(|error| ApiError::local(fill(e.invalid_json, &[&error])));
        }
        let mut spec = self.spec.clone();
        form_fields::write_to_spec(&T::fields(&self.spec, self.user.lang()), values, &mut spec);
        T::write_special_fields(values, &mut spec);
        Ok(spec)
    }
}

/// Whether to show the form again with the submitted values, because the error can be corrected or is
/// temporary. Missing permissions and deleted resources lead to the error page instead.
pub(super) fn is_correctable(error: &ApiError) -> bool {
    !matches!(error.status, 401 | 403 | 404)
}

async fn show_new<T: EditableResource>(
    user: CurrentUser,
    Query(query): Query<EditorQuery>,
) -> PageResult {
    require_admin(&user)?;
    let Some(choice) = query.choice else {
        let (title, lead) = T::new_page_texts(user.lang());
        let choices = T::choices(user.lang());
        let frame = PageFrame::new(&user, T::NAV, title);
        return render_page(&ChoosePage { frame, lead, choices });
    };
    let form = new_form::<T>(&user, &choice).with_json(query.form.as_deref() == Some("json"));
    render_page(&form.page())
}

fn new_form<'v, T: EditableResource>(user: &'v CurrentUser, choice: &str) -> ResourceForm<'v, T> {
    ResourceForm::new(user, None, json!({ "name": "", T::CHOICE_FIELD: choice }), String::new())
}

async fn create<T: EditableResource>(
    user: CurrentUser,
    Query(query): Query<EditorQuery>,
    Form(values): Form<FormValues>,
) -> PageResult {
    let form = new_form::<T>(&user, query.choice.as_deref().unwrap_or(T::DEFAULT_CHOICE))
        .with_json(query.form.as_deref() == Some("json"));
    let idempotency_key = values.get("idempotency_key").filter(|key| !key.is_empty());
    let created = match (form.submitted_spec(&values), idempotency_key) {
        (Err(error), _) => Err(error),
        (Ok(spec), Some(key)) => {
            user.call(calls::create_resource(T::PATH, &spec).idempotent(key)).await
        }
        (Ok(spec), None) => user.call(calls::create_resource(T::PATH, &spec)).await,
    };
    finish_save::<T>(&user, &form, &values, created)
}

async fn load_form<'v, T: EditableResource>(
    user: &'v CurrentUser,
    name: &str,
) -> Result<ResourceForm<'v, T>, ApiError> {
    let (spec, tag) = user.call_versioned(calls::get_resource(T::PATH, name)).await?;
    Ok(ResourceForm::new(user, Some(name.to_owned()), form_fields::editable_spec(spec), tag))
}

async fn show_edit<T: EditableResource>(
    user: CurrentUser,
    Path(name): Path<String>,
    Query(query): Query<EditorQuery>,
) -> PageResult {
    require_admin(&user)?;
    let form = load_form::<T>(&user, &name).await?;
    render_page(&form.with_json(query.form.as_deref() == Some("json")).page())
}

async fn replace<T: EditableResource>(
    user: CurrentUser,
    Path(name): Path<String>,
    Query(query): Query<EditorQuery>,
    Form(values): Form<FormValues>,
) -> PageResult {
    let form = load_form::<T>(&user, &name).await?;
    let form = form.with_json(query.form.as_deref() == Some("json"));
    let changed = match form.submitted_spec(&values) {
        Err(error) => Err(error),
        Ok(spec) => {
            // The version the form was filled from, not the one just loaded.
            let tag = values.get("tag").map(String::as_str).unwrap_or_default();
            user.call(calls::replace_resource(T::PATH, &name, &spec).if_match(tag)).await
        }
    };
    finish_save::<T>(&user, &form, &values, changed)
}

fn finish_save<T: EditableResource>(
    user: &CurrentUser,
    form: &ResourceForm<'_, T>,
    values: &FormValues,
    answer: Result<Value, ApiError>,
) -> PageResult {
    match answer {
        Ok(saved) => {
            let name = saved["name"].as_str().unwrap_or_default();
            let to = format!("/{}/{}", T::PATH, percent_encode(name));
            Ok(user.redirect_with_notice(&to, fill(FormTexts::of(user.lang()).saved, &[&name])))
        }
        Err(error) if is_correctable(&error) => render_page(&form.page_with_error(values, &error)),
        Err(error) => Err(error),
    }
}

#[derive(Deserialize)]
struct DeleteForm {
    #[serde(default)]
    name: String,
    #[serde(default)]
    tag: String,
}

async fn delete<T: EditableResource>(
    user: CurrentUser,
    Path(name): Path<String>,
    Form(form): Form<DeleteForm>,
) -> PageResult {
    let e = FormTexts::of(user.lang());
    let path = format!("/{}/{}", T::PATH, percent_encode(&name));
    if form.name.trim() != name {
        return Ok(user.redirect_with_error(&path, &ApiError::local(e.delete_wrong)));
    }
    match user.call(calls::delete_resource(T::PATH, &name).if_match(&form.tag)).await {
        Ok(()) => {
            Ok(user.redirect_with_notice(&format!("/{}", T::PATH), fill(e.deleted, &[&name])))
        }
        Err(error) if is_correctable(&error) => Ok(user.redirect_with_error(&path, &error)),
        Err(error) => Err(error),
    }
}

/// Hides forms from users without permission; the API would reject them anyway.
pub(super) fn require_admin(user: &CurrentUser) -> Result<(), ApiError> {
    match user.can_administer() {
        true => Ok(()),
        false => Err(ApiError { status: 403, ..ApiError::default() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_is_shown_again_unless_forbidden_or_gone() {
        for (status, expected) in [
            (400, true),
            (403, false),
            (404, false),
            (409, true),
            (412, true),
            (422, true),
            (429, true),
            (500, true),
            (503, true),
        ] {
            let error = ApiError { status, ..ApiError::default() };
            assert_eq!(is_correctable(&error), expected, "case: {status}");
        }
    }
}
