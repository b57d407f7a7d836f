//! The route list, grouped by source.

use askama::Template;
use surehook_api::{ApiTransport as _, calls, resources::RouteResponse};

use crate::{
    current_user::CurrentUser,
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::{FormTexts, RouteTexts},
};

struct SourceRoutes {
    from: String,
    routes: Vec<RouteResponse>,
}

#[derive(Template)]
#[template(path = "routes.html")]
struct RoutesPage {
    frame: PageFrame,
    t: &'static RouteTexts,
    e: &'static FormTexts,
    groups: Vec<SourceRoutes>,
    can_create: bool,
}

pub(super) async fn list_routes(user: CurrentUser) -> PageResult {
    let (t, e) = (RouteTexts::of(user.lang()), FormTexts::of(user.lang()));
    let mut routes = user.call(calls::list_routes()).await?.data;
    routes.sort_by(|a, b| (&a.spec.to, a.id).cmp(&(&b.spec.to, b.id)));
    let sources = user.source_names().await?;
    let can_create = !sources.is_empty() && !user.destination_names().await?.is_empty();
    let group = |from: String| {
        let of_source =
            routes.iter().filter(|route| route.spec.from.as_str() == from).cloned().collect();
        SourceRoutes { from, routes: of_source }
    };
    let groups = sources.into_iter().map(group).collect();
    let frame = PageFrame::of_menu(&user, NavItem::Routes);
    render_page(&RoutesPage { frame, t, e, groups, can_create })
}
