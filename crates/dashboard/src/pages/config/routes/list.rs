//! All routes, source by source.

use askama::Template;

use super::{Route, names};
use crate::{
    client::{Address, List},
    page::{Frame, Nav, Shown, show},
    visitor::Visitor,
    words::{Edit, Routes},
};

/// A source and where it leads.
struct Group {
    from: String,
    routes: Vec<Route>,
}

#[derive(Template)]
#[template(path = "routes.html")]
struct RoutesPage {
    frame: Frame,
    t: &'static Routes,
    e: &'static Edit,
    groups: Vec<Group>,
    can_make: bool,
}

pub(super) async fn list(visitor: Visitor) -> Shown {
    let (t, e) = (Routes::of(visitor.lang()), Edit::of(visitor.lang()));
    let found = visitor.get::<List<Route>>(Address::new(&["routes"])).await;
    let mut routes = found.map_err(|trouble| visitor.failed(trouble))?.data;
    routes.sort_by(|a, b| (&a.to, &a.id).cmp(&(&b.to, &b.id)));
    let sources = names(&visitor, "sources").await?;
    let can_make = !sources.is_empty() && !names(&visitor, "destinations").await?.is_empty();
    let group = |from: String| {
        let of_it = routes.iter().filter(|route| route.from == from).cloned().collect();
        Group { from, routes: of_it }
    };
    let groups = sources.into_iter().map(group).collect();
    let frame = Frame::new(&visitor, Nav::Routes, t.title);
    show(&RoutesPage { frame, t, e, groups, can_make })
}
