//! Makes, changes and deletes sources and destinations.

use std::{marker::PhantomData, sync::Arc};

use askama::Template;
use axum::{
    Form, Router,
    extract::{Path, Query},
    routing::{get, post},
};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Choice, Thing};
use crate::{
    Dashboard,
    client::{Address, Trouble, encode},
    fields::{self, Control, Field, Typed},
    lang::fill,
    page::{Frame, Shown, show},
    visitor::Visitor,
    words::Edit,
};

pub(super) fn routes<T: Thing>() -> Router<Arc<Dashboard>> {
    let path = |rest: &str| format!("/{}{rest}", T::PATH);
    Router::new()
        .route(&path("/new"), get(begin::<T>).post(create::<T>))
        .route(&path("/{name}/edit"), get(edit::<T>).post(replace::<T>))
        .route(&path("/{name}/delete"), post(delete::<T>))
}

#[derive(Template)]
#[template(path = "choose.html")]
struct ChoosePage {
    frame: Frame,
    lead: &'static str,
    choices: Vec<Choice>,
}

#[derive(Template)]
#[template(path = "edit.html")]
struct EditPage {
    frame: Frame,
    e: &'static Edit,
    tabs: Vec<(String, &'static str, bool)>,
    fields: Vec<Field>,
    /// All settings as text, where they are edited so.
    json: Option<String>,
    action: String,
    back: String,
    /// The version that was read; empty for one that is new.
    tag: String,
    once: String,
    trouble: Option<Trouble>,
    conflict: bool,
    secrets_again: bool,
}

#[derive(Deserialize)]
struct Asked {
    /// What was chosen first.
    choice: Option<String>,
    /// `json` for all settings as text.
    #[serde(rename = "as")]
    form: Option<String>,
}

/// A form while it is put together.
struct Sheet<'v, T> {
    visitor: &'v Visitor,
    /// The name of what is there; none for one that is new.
    name: Option<String>,
    spec: Value,
    tag: String,
    as_json: bool,
    thing: PhantomData<T>,
}

impl<'v, T: Thing> Sheet<'v, T> {
    fn new(visitor: &'v Visitor, name: Option<String>, spec: Value, tag: String) -> Self {
        Self { visitor, name, spec, tag, as_json: false, thing: PhantomData }
    }

    /// With all settings as text instead of fields.
    fn written(self, as_json: bool) -> Self {
        Self { as_json, ..self }
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = T::fields(&self.spec, self.visitor.lang());
        fields::fill(&mut fields, &self.spec);
        T::fill_own(&mut fields, &self.spec);
        fields
    }

    /// The page as it is first shown.
    fn page(&self) -> EditPage {
        let e = Edit::of(self.visitor.lang());
        let choice = self.spec[T::CHOICE].as_str().unwrap_or(T::USUAL);
        let (title, base, back) = match &self.name {
            Some(name) => {
                let one = format!("/{}/{}", T::PATH, encode(name));
                (fill(e.edit_title, &[name]), format!("{one}/edit?"), one)
            }
            None => {
                let base = format!("/{}/new?choice={}&", T::PATH, encode(choice));
                (T::begin(self.visitor.lang()).0.to_owned(), base, format!("/{}", T::PATH))
            }
        };
        let tab = |query: &str, name, here| {
            (format!("{base}{query}").trim_end_matches(['?', '&']).to_owned(), name, here)
        };
        let tabs = vec![tab("", e.as_form, !self.as_json), tab("as=json", e.as_json, self.as_json)];
        let json = serde_json::to_string_pretty(&self.spec).unwrap_or_default();
        EditPage {
            frame: Frame::new(self.visitor, T::NAV, title),
            e,
            action: tabs[usize::from(self.as_json)].0.clone(),
            tabs,
            fields: self.fields(),
            json: self.as_json.then_some(json),
            back,
            tag: self.tag.clone(),
            once: self.visitor.once(),
            trouble: None,
            conflict: false,
            secrets_again: false,
        }
    }

    /// The same page after something was refused, with what was typed.
    fn again(&self, typed: &Typed, trouble: &Trouble) -> EditPage {
        let mut page = self.page();
        let is_conflict = trouble.status == 412;
        fields::refill(&mut page.fields, typed, is_conflict.then_some(&self.spec));
        let is_typed = |field: &Field| {
            field.is_secret() && typed.get(&field.name).is_some_and(|text| !text.is_empty())
        };
        let sent = typed.get("once").map(String::as_str).unwrap_or_default();
        EditPage {
            secrets_again: page.fields.iter().any(is_typed),
            json: page.json.map(|json| typed.get("json").cloned().unwrap_or(json)),
            trouble: Some(trouble.clone()),
            conflict: is_conflict,
            once: self.visitor.once_again(sent, trouble),
            ..page
        }
    }

    /// What is to be saved.
    fn wished(&self, typed: &Typed) -> Result<Value, Trouble> {
        if let Some(text) = typed.get("json").filter(|_| self.as_json) {
            let not_json = |error: serde_json::Error| Trouble {
                status: 0,
                detail: fill(Edit::of(self.visitor.lang()).not_json, &[&error]),
            };
            return serde_json::from_str(text).map_err(not_json);
        }
        let mut spec = self.spec.clone();
        fields::write(&T::fields(&self.spec, self.visitor.lang()), typed, &mut spec);
        T::write_own(typed, &mut spec);
        Ok(spec)
    }
}

/// Whether the form is worth showing again, with what was typed: it can be mended, or sent again when
/// the gateway is less busy. Only who may not do it at all, or whose thing is gone, is told so instead.
pub(super) fn can_be_mended(trouble: &Trouble) -> bool {
    !matches!(trouble.status, 401 | 403 | 404)
}

async fn begin<T: Thing>(visitor: Visitor, Query(asked): Query<Asked>) -> Shown {
    may_configure(&visitor)?;
    let Some(choice) = asked.choice else {
        let (title, lead) = T::begin(visitor.lang());
        let choices = T::choices(visitor.lang());
        let frame = Frame::new(&visitor, T::NAV, title);
        return show(&ChoosePage { frame, lead, choices });
    };
    let sheet = fresh::<T>(&visitor, &choice).written(asked.form.as_deref() == Some("json"));
    show(&sheet.page())
}

fn fresh<'v, T: Thing>(visitor: &'v Visitor, choice: &str) -> Sheet<'v, T> {
    Sheet::new(visitor, None, json!({ "name": "", T::CHOICE: choice }), String::new())
}

async fn create<T: Thing>(
    visitor: Visitor,
    Query(asked): Query<Asked>,
    Form(typed): Form<Typed>,
) -> Shown {
    let sheet = fresh::<T>(&visitor, asked.choice.as_deref().unwrap_or(T::USUAL))
        .written(asked.form.as_deref() == Some("json"));
    let once = typed.get("once").filter(|once| !once.is_empty());
    let made: Result<Value, Trouble> = match (sheet.wished(&typed), once) {
        (Err(trouble), _) => Err(trouble),
        (Ok(wish), Some(once)) => {
            visitor.post_once(Address::new(&[T::PATH]), Some(wish), once).await
        }
        (Ok(wish), None) => visitor.post(Address::new(&[T::PATH]), Some(wish)).await,
    };
    finish::<T>(&visitor, &sheet, &typed, made)
}

async fn found<'v, T: Thing>(
    visitor: &'v Visitor,
    name: &str,
) -> Result<Sheet<'v, T>, crate::page::Failed> {
    let found = visitor.get_tagged::<Value>(Address::new(&[T::PATH, name])).await;
    let (spec, tag) = found.map_err(|trouble| visitor.failed(trouble))?;
    Ok(Sheet::new(visitor, Some(name.to_owned()), fields::bare(spec), tag))
}

async fn edit<T: Thing>(
    visitor: Visitor,
    Path(name): Path<String>,
    Query(asked): Query<Asked>,
) -> Shown {
    may_configure(&visitor)?;
    let sheet = found::<T>(&visitor, &name).await?;
    show(&sheet.written(asked.form.as_deref() == Some("json")).page())
}

async fn replace<T: Thing>(
    visitor: Visitor,
    Path(name): Path<String>,
    Query(asked): Query<Asked>,
    Form(typed): Form<Typed>,
) -> Shown {
    let sheet = found::<T>(&visitor, &name).await?;
    let sheet = sheet.written(asked.form.as_deref() == Some("json"));
    let changed: Result<Value, Trouble> = match sheet.wished(&typed) {
        Err(trouble) => Err(trouble),
        Ok(wish) => {
            // The version that was in the form, not the one that was read now.
            let tag = typed.get("tag").map(String::as_str).unwrap_or_default();
            visitor.change(Method::PUT, Address::new(&[T::PATH, &name]), Some(wish), tag).await
        }
    };
    finish::<T>(&visitor, &sheet, &typed, changed)
}

fn finish<T: Thing>(
    visitor: &Visitor,
    sheet: &Sheet<'_, T>,
    typed: &Typed,
    answer: Result<Value, Trouble>,
) -> Shown {
    match answer {
        Ok(saved) => {
            let name = saved["name"].as_str().unwrap_or_default();
            let to = format!("/{}/{}", T::PATH, encode(name));
            Ok(visitor.done(&to, fill(Edit::of(visitor.lang()).saved, &[&name])))
        }
        Err(trouble) if can_be_mended(&trouble) => show(&sheet.again(typed, &trouble)),
        Err(trouble) => Err(visitor.failed(trouble)),
    }
}

#[derive(Deserialize)]
struct Farewell {
    #[serde(default)]
    name: String,
    #[serde(default)]
    tag: String,
}

async fn delete<T: Thing>(
    visitor: Visitor,
    Path(name): Path<String>,
    Form(typed): Form<Farewell>,
) -> Shown {
    let e = Edit::of(visitor.lang());
    let one = format!("/{}/{}", T::PATH, encode(&name));
    if typed.name.trim() != name {
        let detail = e.delete_wrong.to_owned();
        return Ok(visitor.refused(&one, &Trouble { detail, ..Trouble::default() }));
    }
    let address = Address::new(&[T::PATH, &name]);
    match visitor.change::<Value>(Method::DELETE, address, None, &typed.tag).await {
        Ok(_) => Ok(visitor.done(&format!("/{}", T::PATH), fill(e.deleted, &[&name]))),
        Err(trouble) if can_be_mended(&trouble) => Ok(visitor.refused(&one, &trouble)),
        Err(trouble) => Err(visitor.failed(trouble)),
    }
}

/// Forms are for those who may send them; the API would refuse them anyway.
pub(super) fn may_configure(visitor: &Visitor) -> Result<(), crate::page::Failed> {
    if visitor.administers() {
        return Ok(());
    }
    let trouble = Trouble { status: 403, ..Trouble::default() };
    Err(visitor.failed(trouble))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_is_kept_unless_nobody_could_send_it() {
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
            let trouble = Trouble { status, ..Trouble::default() };
            assert_eq!(can_be_mended(&trouble), expected, "case: {status}");
        }
    }
}
