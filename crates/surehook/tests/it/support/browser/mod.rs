//! A real Chromium of its own for each test, without a window, driven over `WebDriver` as a person
//! would use it (decision 0053). Whatever waits here waits for a fact and gives up after [`WAIT_LIMIT`].

mod axe;
mod chromedriver;
mod console;
mod element;
mod emulate;
mod webdriver;

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
};

use data_encoding::BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::{chromedriver::ChromeDriver, console::ConsoleEntry, webdriver::WebDriverSession};
use super::{WAIT_LIMIT, eventually};

pub(crate) use self::{
    axe::{assert_accessible, axe},
    emulate::ColorScheme,
};

/// Keys that are no letters, as `WebDriver` writes them.
pub(crate) mod key {
    pub(crate) const ENTER: &str = "\u{e007}";
    pub(crate) const SHIFT: &str = "\u{e008}";
    pub(crate) const TAB: &str = "\u{e004}";
}

/// How a browser is started.
#[derive(Clone, Debug)]
pub(crate) struct BrowserBuilder {
    languages: String,
    width: u32,
    height: u32,
    scheme: ColorScheme,
}

impl BrowserBuilder {
    /// What the person reads, the best first: `de,en`.
    pub(crate) fn languages(mut self, languages: &str) -> Self {
        languages.clone_into(&mut self.languages);
        self
    }

    /// What of a page is seen at once, in pixels.
    pub(crate) fn size(mut self, width: u32, height: u32) -> Self {
        (self.width, self.height) = (width, height);
        self
    }

    pub(crate) fn scheme(mut self, scheme: ColorScheme) -> Self {
        self.scheme = scheme;
        self
    }

    pub(crate) async fn start(self) -> Browser {
        let folder = tempfile::tempdir().unwrap();
        let (mut driver, port) = ChromeDriver::start(folder.path());
        let mut session = WebDriverSession::new(port);
        let opened = session.open(&self.capabilities(folder.path())).await;
        driver.started(&opened["goog:processID"]);
        let browser = Browser { session, console: Mutex::default(), driver, folder };
        browser.install_console_watch().await;
        browser.resize(self.width, self.height).await;
        browser.set_color_scheme(self.scheme).await;
        browser
    }

    fn capabilities(&self, folder: &Path) -> Value {
        let first = self.languages.split(',').next().unwrap();
        let mut args = vec![
            "--headless=new".to_owned(),
            format!("--user-data-dir={}", folder.join("profile").display()),
            format!("--lang={first}"),
            // Containers give little of it.
            "--disable-dev-shm-usage".to_owned(),
            "--disable-gpu".to_owned(),
            "--force-device-scale-factor=1".to_owned(),
            "--hide-scrollbars".to_owned(),
            // Nothing but the test decides where the browser goes.
            "--disable-background-networking".to_owned(),
            "--no-proxy-server".to_owned(),
            "--no-first-run".to_owned(),
        ];
        // Its sandbox does not work for root, who runs the tests in many a container.
        if rustix::process::getuid().is_root() {
            args.push("--no-sandbox".to_owned());
        }
        json!({
            "browserName": "chrome",
            // A dialog stays open, and the next call meets it and fails.
            "unhandledPromptBehavior": "ignore",
            "goog:loggingPrefs": { "browser": "ALL" },
            "timeouts": { "pageLoad": 30_000, "script": 25_000 },
            "goog:chromeOptions": {
                "binary": program("SUREHOOK_CHROMIUM", "chromium"),
                "args": args,
                "prefs": { "intl.accept_languages": self.languages },
            },
        })
    }
}

/// A browser with one page. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Browser {
    session: WebDriverSession,
    /// All that was told on the console so far, over all pages.
    console: Mutex<Vec<ConsoleEntry>>,
    driver: ChromeDriver,
    folder: TempDir,
}

impl Browser {
    /// A browser with the size of a small laptop, in English and light.
    pub(crate) fn builder() -> BrowserBuilder {
        BrowserBuilder {
            languages: "en".to_owned(),
            width: 1280,
            height: 800,
            scheme: ColorScheme::Light,
        }
    }

    pub(crate) async fn start() -> Self {
        Self::builder().start().await
    }

    /// Opens a page and waits until it and what it needs is there.
    pub(crate) async fn open(&self, url: &str) {
        self.session.execute("POST", "/url", &json!({ "url": url })).await;
    }

    /// Where the browser is now.
    pub(crate) async fn url(&self) -> String {
        self.session.execute("GET", "/url", &Value::Null).await.as_str().unwrap().to_owned()
    }

    /// Runs JavaScript in the page, where `arguments` has the given ones; gives what it returns.
    pub(crate) async fn run(&self, script: &str, arguments: &[Value]) -> Value {
        let body = json!({ "script": script, "args": arguments });
        self.session.execute("POST", "/execute/sync", &body).await
    }

    /// The same, and its answer is what it hands to its last argument.
    pub(crate) async fn run_async(&self, script: &str, arguments: &[Value]) -> Value {
        let body = json!({ "script": script, "args": arguments });
        self.session.execute("POST", "/execute/async", &body).await
    }

    /// Waits until an expression of JavaScript is true.
    #[track_caller]
    pub(crate) fn wait_until<'b>(&'b self, expression: &str) -> impl Future<Output = ()> + use<'b> {
        let body = json!({ "script": format!("return Boolean({expression})"), "args": [] });
        // A page that is just left refuses: that is not yet true.
        eventually(WAIT_LIMIT, move || {
            let body = body.clone();
            async move {
                let found = self.session.call("POST", "/execute/sync", &body).await;
                (found == Ok(Value::Bool(true))).then_some(())
            }
        })
    }

    /// Any command of the browser's own protocol, for what `WebDriver` has no word for.
    pub(crate) async fn cdp(&self, command: &str, parameters: Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        self.session.execute("POST", "/goog/cdp/execute", &body).await
    }

    /// The cookies that would be sent to this page, `HttpOnly` ones too.
    pub(crate) async fn cookies(&self) -> Vec<Value> {
        self.session.execute("GET", "/cookie", &Value::Null).await.as_array().unwrap().clone()
    }

    pub(crate) async fn delete_cookies(&self) {
        self.session.execute("DELETE", "/cookie", &Value::Null).await;
    }

    /// What is seen of the page now, as a PNG.
    pub(crate) async fn screenshot(&self, file: &Path) {
        let picture = self.session.execute("GET", "/screenshot", &Value::Null).await;
        let picture = BASE64.decode(picture.as_str().unwrap().as_bytes()).unwrap();
        std::fs::write(file, picture).unwrap();
    }

    /// A folder of its own, gone with the browser.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Browser {
    /// Shows what explains a failed test: the console, and the page as a picture.
    #[expect(clippy::print_stderr, reason = "whoever reads why a test failed wants to see it")]
    fn print_failure_details(&self) {
        eprintln!("--- console of the browser, as far as it was asked for");
        for entry in self.console.lock().unwrap().iter() {
            eprintln!("{entry}");
        }
        let url = self.session.call_blocking("GET", "/url");
        let picture = self.session.call_blocking("GET", "/screenshot");
        let (Some(Value::String(url)), Some(Value::String(picture))) = (url, picture) else {
            return eprintln!("--- the page cannot be shown");
        };
        let folder = target().join("browser/failed");
        let test = std::thread::current().name().unwrap_or("test").replace("::", ".");
        let file = folder.join(format!("{test}.png"));
        let picture = BASE64.decode(picture.as_bytes()).unwrap_or_default();
        let kept = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&file, picture));
        eprintln!("--- {url} is shown in {} ({kept:?})", file.display());
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_failure_details();
        }
        // It ends in order, so that none of its helpers writes to the folder any more.
        self.session.close();
        self.driver.end();
    }
}

/// The one that the environment names, or that scripts/browser found or installed, or that the
/// machine has.
fn program(variable: &str, name: &str) -> PathBuf {
    if let Some(named) = std::env::var_os(variable) {
        return named.into();
    }
    let places = [target().join("browser").join(name), PathBuf::from("/usr/bin").join(name)];
    let found = places.iter().find(|place| place.exists());
    let found = found.unwrap_or_else(|| panic!("there is no {name}; run scripts/browser"));
    found.clone()
}

/// Where cargo builds: the program under test is in target/debug.
fn target() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_surehook")).ancestors().nth(2).unwrap()
}
