//! Create, edit and delete routes.

use axum::{
    Form,
    extract::{Path, Query},
};
use serde::Deserialize;
use serde_json::Map;
use surehook_api::{ApiTransport as _, calls, percent_encode};
use surehook_core::route::RouteSpec;

use super::{
    super::editor::{is_correctable, require_admin},
    form::{RouteForm, page_title, route_page},
};
use crate::{
    current_user::CurrentUser,
    lang::{Lang, fill},
    page::{PageResult, render_page},
    translations::{CommonTexts, FormTexts, RouteTexts},
};

pub(super) async fn show_new(user: CurrentUser, Query(form): Query<RouteForm>) -> PageResult {
    require_admin(&user)?;
    let form = RouteForm { id: None, ..form };
    let title = RouteTexts::of(user.lang()).new.to_owned();
    render_page(&route_page(&user, form, title).await?)
}

pub(super) async fn show_edit(user: CurrentUser, Path(id): Path<String>) -> PageResult {
    require_admin(&user)?;
    let (route, tag) = user.call_versioned(calls::get_route(&id)).await?;
    let form = RouteForm {
        id: Some(id),
        tag,
        from: route.spec.from.to_string(),
        to: route.spec.to.to_string(),
        filter: route.spec.filter.unwrap_or_default(),
        transform: route.spec.transform.unwrap_or_default(),
        ..RouteForm::default()
    };
    let title = page_title(&user, &form);
    render_page(&route_page(&user, form, title).await?)
}

pub(super) async fn save_route(user: CurrentUser, Form(mut form): Form<RouteForm>) -> PageResult {
    let e = FormTexts::of(user.lang());
    let mut payload = Map::new();
    for (name, text) in [("from", &form.from), ("to", &form.to)] {
        payload.insert(name.to_owned(), text.clone().into());
    }
    form.write_programs(&mut payload);
    let call = match &form.id {
        Some(id) => calls::replace_resource("routes", id, &payload).if_match(&form.tag),
        None => calls::create_resource("routes", &payload).idempotent(&form.idempotency_key),
    };
    let error = match user.call(call).await {
        Ok(_) => {
            let name = format!("{} → {}", form.from, form.to);
            return Ok(user.redirect_with_notice("/routes", fill(e.saved, &[&name])));
        }
        Err(error) if is_correctable(&error) => error,
        Err(error) => return Err(error),
    };
    let is_conflict = error.status == 412;
    let differences = match &form.id {
        Some(id) if is_conflict => {
            let (current, tag) = user.call_versioned(calls::get_route(id)).await?;
            form.tag = tag;
            list_differences(&current.spec, &form, user.lang())
        }
        _ => Vec::new(),
    };
    let title = page_title(&user, &form);
    let idempotency_key = user.idempotency_key_for_retry(&form.idempotency_key, &error);
    let mut page = route_page(&user, form, title).await?;
    (page.error, page.conflict) = (Some(error.detail), is_conflict);
    (page.differences, page.idempotency_key) = (differences, idempotency_key);
    render_page(&page)
}

/// Current settings that differ from the submitted ones.
fn list_differences(
    current: &RouteSpec,
    form: &RouteForm,
    lang: Lang,
) -> Vec<(&'static str, String)> {
    let (t, c) = (RouteTexts::of(lang), CommonTexts::of(lang));
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    [
        (c.source, current.from.to_string(), &form.from),
        (c.destination, current.to.to_string(), &form.to),
        (t.filter, text(&current.filter), &form.filter),
        (t.transform, text(&current.transform), &form.transform),
    ]
    .into_iter()
    .filter(|(_, current, form)| current.trim() != form.trim())
    .map(|(name, current, _)| (name, current))
    .collect()
}

#[derive(Deserialize)]
pub(super) struct DeleteRouteForm {
    #[serde(default)]
    tag: String,
}

pub(super) async fn delete_route(
    user: CurrentUser,
    Path(id): Path<String>,
    Form(form): Form<DeleteRouteForm>,
) -> PageResult {
    match user.call(calls::delete_resource("routes", &id).if_match(&form.tag)).await {
        Ok(()) => Ok(user.redirect_with_notice("/routes", RouteTexts::of(user.lang()).deleted)),
        Err(error) if error.status == 412 => {
            Ok(user.redirect_with_error(&format!("/routes/{}/edit", percent_encode(&id)), &error))
        }
        Err(error) => Err(error),
    }
}
