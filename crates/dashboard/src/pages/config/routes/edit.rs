//! Makes, changes and deletes routes.

use axum::{
    Form,
    extract::{Path, Query},
};
use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    super::editor::{can_be_mended, may_configure},
    Route,
    form::{Typed, page, title},
};
use crate::{
    client::{Address, Trouble, encode},
    lang::fill,
    page::{Shown, show},
    visitor::Visitor,
    words::{Edit, Routes},
};

pub(super) async fn begin(visitor: Visitor, Query(typed): Query<Typed>) -> Shown {
    may_configure(&visitor)?;
    let typed = Typed { id: None, ..typed };
    let title = Routes::of(visitor.lang()).new.to_owned();
    show(&page(&visitor, typed, title).await?)
}

pub(super) async fn edit(visitor: Visitor, Path(id): Path<String>) -> Shown {
    may_configure(&visitor)?;
    let found = visitor.get_tagged::<Route>(Address::new(&["routes", &id])).await;
    let (route, tag) = found.map_err(|trouble| visitor.failed(trouble))?;
    let typed = Typed {
        id: Some(route.id),
        tag,
        from: route.from,
        to: route.to,
        filter: route.filter.unwrap_or_default(),
        transform: route.transform.unwrap_or_default(),
        ..Typed::default()
    };
    let title = title(&visitor, &typed);
    show(&page(&visitor, typed, title).await?)
}

pub(super) async fn save(visitor: Visitor, Form(mut typed): Form<Typed>) -> Shown {
    let e = Edit::of(visitor.lang());
    let mut wish = Map::new();
    for (name, text) in [("from", &typed.from), ("to", &typed.to)] {
        wish.insert(name.to_owned(), text.clone().into());
    }
    typed.write_programs(&mut wish);
    let wish = Some(Value::Object(wish));
    let saved: Result<Value, Trouble> = match &typed.id {
        Some(id) => {
            visitor.change(Method::PUT, Address::new(&["routes", id]), wish, &typed.tag).await
        }
        None => visitor.post_once(Address::new(&["routes"]), wish, &typed.once).await,
    };
    let trouble = match saved {
        Ok(_) => {
            let name = format!("{} → {}", typed.from, typed.to);
            return Ok(visitor.done("/routes", fill(e.saved, &[&name])));
        }
        Err(trouble) if can_be_mended(&trouble) => trouble,
        Err(trouble) => return Err(visitor.failed(trouble)),
    };
    let is_conflict = trouble.status == 412;
    let now = match &typed.id {
        Some(id) if is_conflict => {
            let there = visitor.get_tagged::<Route>(Address::new(&["routes", id])).await;
            let (there, tag) = there.map_err(|trouble| visitor.failed(trouble))?;
            typed.tag = tag;
            differences(&there, &typed, Routes::of(visitor.lang()))
        }
        _ => Vec::new(),
    };
    let title = title(&visitor, &typed);
    let once = visitor.once_again(&typed.once, &trouble);
    let mut page = page(&visitor, typed, title).await?;
    (page.trouble, page.conflict) = (Some(trouble.detail), is_conflict);
    (page.now, page.once) = (now, once);
    show(&page)
}

/// What is there and is not what was typed.
fn differences(there: &Route, typed: &Typed, t: &'static Routes) -> Vec<(&'static str, String)> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    [
        (t.from, there.from.clone(), &typed.from),
        (t.to, there.to.clone(), &typed.to),
        (t.filter, text(&there.filter), &typed.filter),
        (t.transform, text(&there.transform), &typed.transform),
    ]
    .into_iter()
    .filter(|(_, there, typed)| there.trim() != typed.trim())
    .map(|(name, there, _)| (name, there))
    .collect()
}

#[derive(Deserialize)]
pub(super) struct Farewell {
    #[serde(default)]
    tag: String,
}

pub(super) async fn delete(
    visitor: Visitor,
    Path(id): Path<String>,
    Form(typed): Form<Farewell>,
) -> Shown {
    let e = Edit::of(visitor.lang());
    let address = Address::new(&["routes", &id]);
    match visitor.change::<Value>(Method::DELETE, address, None, &typed.tag).await {
        Ok(_) => Ok(visitor.done("/routes", fill(e.deleted, &[&Routes::of(visitor.lang()).route]))),
        Err(trouble) if trouble.status == 412 => {
            Ok(visitor.refused(&format!("/routes/{}/edit", encode(&id)), &trouble))
        }
        Err(trouble) => Err(visitor.failed(trouble)),
    }
}
