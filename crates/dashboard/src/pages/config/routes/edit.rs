//! Create, edit and delete routes.

use axum::{
    Form,
    extract::{Path, Query},
};
use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    super::editor::{is_correctable, require_admin},
    RouteItem,
    form::{RouteForm, page_title, route_page},
};
use crate::{
    client::{ApiError, ApiPath, percent_encode},
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
    let (route, tag) = user.get_with_etag::<RouteItem>(ApiPath::new(&["routes", &id])).await?;
    let form = RouteForm {
        id: Some(route.id),
        tag,
        from: route.from,
        to: route.to,
        filter: route.filter.unwrap_or_default(),
        transform: route.transform.unwrap_or_default(),
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
    let payload = Some(Value::Object(payload));
    let saved: Result<Value, ApiError> = match &form.id {
        Some(id) => {
            user.call_if_match(Method::PUT, ApiPath::new(&["routes", id]), payload, &form.tag).await
        }
        None => {
            user.post_idempotent(ApiPath::new(&["routes"]), payload, &form.idempotency_key).await
        }
    };
    let error = match saved {
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
            let (current, tag) =
                user.get_with_etag::<RouteItem>(ApiPath::new(&["routes", id])).await?;
            form.tag = tag;
            list_differences(&current, &form, user.lang())
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
    current: &RouteItem,
    form: &RouteForm,
    lang: Lang,
) -> Vec<(&'static str, String)> {
    let (t, c) = (RouteTexts::of(lang), CommonTexts::of(lang));
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    [
        (c.source, current.from.clone(), &form.from),
        (c.destination, current.to.clone(), &form.to),
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
    let address = ApiPath::new(&["routes", &id]);
    match user.call_if_match::<Value>(Method::DELETE, address, None, &form.tag).await {
        Ok(_) => Ok(user.redirect_with_notice("/routes", RouteTexts::of(user.lang()).deleted)),
        Err(error) if error.status == 412 => {
            Ok(user.redirect_with_error(&format!("/routes/{}/edit", percent_encode(&id)), &error))
        }
        Err(error) => Err(error),
    }
}
