//! A separate headless Chromium for each test, driven over `WebDriver` (decision 0053). Every wait is
//! for a condition and gives up after [`WAIT_LIMIT`].

mod axe;
mod chromedriver;
mod console;
mod element;
mod emulate;
mod webdriver;

use std::{path::Path, sync::Mutex};

use data_encoding::BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::{chromedriver::ChromeDriver, console::ConsoleEntry, webdriver::WebDriverSession};
use super::{
    WAIT_LIMIT, eventually,
    tools::{chromium, target},
};

pub(crate) use self::{
    axe::{assert_accessible, axe},
    emulate::ColorScheme,
};

/// Special keys, as `WebDriver` encodes them.
pub(crate) mod key {
    pub(crate) const ENTER: &str = "\u{e007}";
    pub(crate) const SHIFT: &str = "\u{e008}";
    pub(crate) const TAB: &str = "\u{e004}";
}

#[derive(Clone, Debug)]
pub(crate) struct BrowserBuilder {
    languages: String,
    width: u32,
    height: u32,
    scheme: ColorScheme,
}

impl BrowserBuilder {
    /// Preferred languages, the first one preferred most: `de,en`.
    pub(crate) fn languages(mut self, languages: &str) -> Self {
        languages.clone_into(&mut self.languages);
        self
    }

    /// The viewport in pixels.
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
        driver.set_browser(&opened["goog:processID"]);
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
            // Containers have little shared memory.
            "--disable-dev-shm-usage".to_owned(),
            "--disable-gpu".to_owned(),
            "--force-device-scale-factor=1".to_owned(),
            "--hide-scrollbars".to_owned(),
            // The browser makes no requests of its own.
            "--disable-background-networking".to_owned(),
            "--no-proxy-server".to_owned(),
            "--no-first-run".to_owned(),
        ];
        // The sandbox does not work for root, which runs the tests in many containers.
        if rustix::process::getuid().is_root() {
            args.push("--no-sandbox".to_owned());
        }
        json!({
            "browserName": "chrome",
            // A dialog stays open, so that the next call fails.
            "unhandledPromptBehavior": "ignore",
            "goog:loggingPrefs": { "browser": "ALL" },
            "timeouts": { "pageLoad": 30_000, "script": 25_000 },
            "goog:chromeOptions": {
                "binary": chromium().expect("Chromium is missing; run scripts/setup browser"),
                "args": args,
                "prefs": { "intl.accept_languages": self.languages },
            },
        })
    }
}

/// A browser with one page. Stops when dropped.
#[derive(Debug)]
pub(crate) struct Browser {
    session: WebDriverSession,
    /// Console entries of all pages so far.
    console: Mutex<Vec<ConsoleEntry>>,
    driver: ChromeDriver,
    folder: TempDir,
}

impl Browser {
    /// Builds a browser with the viewport of a small laptop, in English and light.
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

    /// Opens a page and waits until it is loaded.
    pub(crate) async fn open(&self, url: &str) {
        self.session.execute("POST", "/url", &json!({ "url": url })).await;
    }

    /// The URL of the current page.
    pub(crate) async fn url(&self) -> String {
        self.session.execute("GET", "/url", &Value::Null).await.as_str().unwrap().to_owned()
    }

    /// Runs JavaScript in the page, with `arguments`, and returns its result.
    pub(crate) async fn run(&self, script: &str, arguments: &[Value]) -> Value {
        let body = json!({ "script": script, "args": arguments });
        self.session.execute("POST", "/execute/sync", &body).await
    }

    /// Like [`Self::run`], but the result is what the script passes to its last argument.
    pub(crate) async fn run_async(&self, script: &str, arguments: &[Value]) -> Value {
        let body = json!({ "script": script, "args": arguments });
        self.session.execute("POST", "/execute/async", &body).await
    }

    /// Waits until a JavaScript expression is true.
    #[track_caller]
    pub(crate) fn wait_until<'b>(&'b self, expression: &str) -> impl Future<Output = ()> + use<'b> {
        let body = json!({ "script": format!("return Boolean({expression})"), "args": [] });
        // A page that is being left returns an error, which counts as not yet true.
        eventually(WAIT_LIMIT, move || {
            let body = body.clone();
            async move {
                let result = self.session.call("POST", "/execute/sync", &body).await;
                (result == Ok(Value::Bool(true))).then_some(())
            }
        })
    }

    /// Runs a command of the Chrome `DevTools` protocol, for what `WebDriver` lacks.
    pub(crate) async fn cdp(&self, command: &str, parameters: Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        self.session.execute("POST", "/goog/cdp/execute", &body).await
    }

    /// The cookies of this page, including `HttpOnly` ones.
    pub(crate) async fn cookies(&self) -> Vec<Value> {
        self.session.execute("GET", "/cookie", &Value::Null).await.as_array().unwrap().clone()
    }

    pub(crate) async fn delete_cookies(&self) {
        self.session.execute("DELETE", "/cookie", &Value::Null).await;
    }

    /// Writes a screenshot of the viewport as PNG.
    pub(crate) async fn screenshot(&self, file: &Path) {
        let picture = self.session.execute("GET", "/screenshot", &Value::Null).await;
        let picture = BASE64.decode(picture.as_str().unwrap().as_bytes()).unwrap();
        std::fs::write(file, picture).unwrap();
    }

    /// A temporary folder, deleted with the browser.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Browser {
    /// Prints the console and saves a screenshot of the page when a test fails.
    #[expect(clippy::print_stderr, reason = "the details explain a failed test")]
    fn print_failure_details(&self) {
        eprintln!("--- console of the browser, as far as it was read");
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
        let saved = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&file, picture));
        eprintln!("--- {url} is saved as {} ({saved:?})", file.display());
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_failure_details();
        }
        // The browser is closed first, so that none of its processes writes to the folder any more.
        self.session.close();
        self.driver.kill();
    }
}
