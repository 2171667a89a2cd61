"""What MkDocs calls while it builds the site. Each step is a module beside this one; here is only their order.

A module that fills markers, shows a notebook's outputs or changes a page's HTML is named in markers.PLUGS and called from there.
MkDocs has this folder on the import path only while it loads this file.
"""

from __future__ import annotations

from pathlib import Path

import markers
import search_index
import signatures
import styles_once
from check import check
from formulas import draw_all
from mkdocs.plugins import CombinedEvent, get_plugin_logger
from navigation import navigation
from own_scripts import only_own_scripts
from pages import write_course
from raw_links import resolve

from shared.course import load_course

log = get_plugin_logger("course")
styles_once.install()
signatures.install()


def on_config(config):
    course = load_course()
    write_course(course, Path(config.docs_dir), log.warning)
    markers.write_all(course, Path(config.docs_dir), log.warning)
    config.nav = navigation(course)
    config.extra["course"] = course
    return config


def on_page_markdown(markdown, page, config, files):
    return markers.fill(markdown, page.file.src_uri, config.extra["course"], log.warning)


def on_page_content(html, page, config, files):
    html = markers.transform(html, page.file.src_uri, config.extra["course"], log.warning)
    return resolve(html, page.file, files, log.warning)


on_page_context = CombinedEvent(search_index.thin, search_index.whole)


def on_post_build(config):
    site = Path(config.site_dir)
    draw_all(site, log.info)
    only_own_scripts(site)
    search_index.tune(site, log.warning)
    check(site, log.warning)
